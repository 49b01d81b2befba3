// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// The log keeps the last events in order, with growing IDs, and wakes its readers.
func TestEventLog(t *testing.T) {
	t.Parallel()
	began := time.UnixMilli(1_000_000)
	l := placer.NewEventLog(3, began)
	if es, _ := l.After(0); len(es) != 0 {
		t.Errorf("%v", es)
	}
	_, changed := l.After(0)
	for i := range 5 {
		l.Add(palapi.Event{Text: fmt.Sprint(i), GPUs: make([]string, 300)})
	}
	select {
	case <-changed:
	default:
		t.Error("the reader was not woken")
	}
	es, changed := l.After(0)
	if len(es) != 3 || es[0].Text != "2" || es[2].Text != "4" || es[0].ID != 1_000_002 || es[2].ID != 1_000_004 || len(es[0].GPUs) != 256 {
		t.Errorf("%+v", es)
	}
	if es, _ := l.After(1_000_003); len(es) != 1 || es[0].Text != "4" {
		t.Errorf("after one: %+v", es)
	}
	select {
	case <-changed:
		t.Error("woken without an event")
	default:
	}
	var none *placer.EventLog
	none.Add(palapi.Event{})
}

// An event takes little memory, however long the names in it are.
func TestEventsAreShort(t *testing.T) {
	t.Parallel()
	log, long := placer.NewEventLog(2, time.UnixMilli(1000)), strings.Repeat("x", 100_000)
	log.Add(palapi.Event{Kind: palapi.EventPlaced, Namespace: "default", Job: long, ForJob: long, Node: long, Text: long})
	events, _ := log.After(0)
	if b, err := json.Marshal(events); err != nil || len(b) > 10_000 {
		t.Errorf("an event has %d bytes: %v", len(b), err)
	}
}

// An event about a stop for a job that the reader may not see does not name that job. Events about
// GPUs are for operators.
func TestEventFor(t *testing.T) {
	t.Parallel()
	mine := func(namespace string) bool { return namespace == "mine" }
	no, yes := func() bool { return false }, func() bool { return true }
	if e, ok := (palapi.Event{Namespace: "mine", ForJob: "theirs/secret"}).RedactedFor(mine, no); !ok || e.ForJob != palapi.Unseen {
		t.Errorf("%+v, %v", e, ok)
	}
	if e, ok := (palapi.Event{Namespace: "mine"}).RedactedFor(mine, no); !ok || e.ForJob != "" {
		t.Errorf("%+v, %v", e, ok)
	}
	if _, ok := (palapi.Event{Namespace: "theirs"}).RedactedFor(mine, yes); ok {
		t.Error("it names a job that the reader may not see")
	}
	for who, operator := range map[bool]func() bool{true: yes, false: no} {
		if _, ok := (palapi.Event{GPUs: []string{"GPU-1"}}).RedactedFor(mine, operator); ok != who {
			t.Errorf("event about a GPU: %v", ok)
		}
	}
}

// The events of a gang tell its story: it was registered, got GPUs, ran, was stopped for another
// one, waited again, failed, and ended.
func TestEventsTellStories(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) {
		c.Queue.Tenants = map[string]queue.Tenant{"research": {Quota: 4}, "ops": {}}
	}}, func(w *bed.World) {
		w.AddNodes(1, 4)
		p := w.StartPlacer()
		told := func(job string) []string {
			var out []string
			es, _ := p.Events.After(0)
			for _, e := range es {
				if e.Job == job {
					out = append(out, strings.TrimSpace(string(e.Kind)+" "+e.ForJob))
				}
			}
			return out
		}
		w.Submit(bed.Gang{Name: "low", Namespace: "ops", GPUs: 4, Runs: 10 * time.Hour, Meta: map[string]string{"pal_preempt": "true"}})
		low, high := nomadtest.Key{Namespace: "ops", ID: "low"}, nomadtest.Key{Namespace: "research", ID: "high"}
		w.RunFor(10 * time.Second)
		w.RunFor(10 * time.Minute)
		w.Submit(bed.Gang{Name: "high", Namespace: "research", GPUs: 4, Runs: time.Hour})
		w.RunFor(time.Minute)
		if got, want := told("low"), []string{"queued", "placed", "started", "stopped research/high", "requeued"}; !slices.Equal(got, want) {
			w.T.Errorf("low: %q, want %q", got, want)
		}
		kept, _ := p.Events.After(0)
		c, err := nomad.NewClient(w.Nomad.Config("reader", ""), "")
		if err != nil {
			w.T.Fatal(err)
		}
		if r, err := store.In(c).Record(w.T.Context(), cluster.JobKey(low)); err != nil || r.StoppedWhy.IsZero() || !slices.ContainsFunc(kept, func(e palapi.Event) bool { return e.Text == "its members are stopped: "+r.StoppedWhy.String() }) {
			w.T.Errorf("its record (%v) and the events give different reasons for the stop", err)
		}
		if err := w.Purge(high); err != nil {
			w.T.Fatal(err)
		}
		w.RunFor(time.Minute)
		if got, want := told("high"), []string{"queued", "placed", "started", "ended"}; !slices.Equal(got, want) {
			w.T.Errorf("high: %q, want %q", got, want)
		}
		if err := w.Stop(low); err != nil {
			w.T.Fatal(err)
		}
		w.RunFor(time.Minute)
		w.Submit(bed.Gang{Name: "broken", Change: func(j *api.Job) {
			j.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", "exit 3"}
		}})
		w.Submit(bed.Gang{Name: "mistaken", Meta: map[string]string{"pal_class": "Z"}})
		w.RunFor(5 * time.Minute)
		if got := told("broken"); !slices.Contains(got, "allocation") || !slices.Contains(got, "requeued") || got[len(got)-1] != "failed" {
			w.T.Errorf("broken: %q", got)
		}
		if got := told("mistaken"); !slices.Equal(got, []string{"rejected"}) {
			w.T.Errorf("mistaken: %q", got)
		}
	})
}

// An elastic gang makes an event each time when the placer changes its size. The event names the
// GPUs that the gang has from then on and, if the gang shrinks, the job that gets the others.
func TestEventsOfSizes(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(1, 4)
		p := w.StartPlacer()
		w.Submit(bed.Gang{Name: "wide", Runs: 10 * time.Hour, Meta: map[string]string{"pal_elastic": "true", "pal_duration": "10h"}, Change: func(j *api.Job) {
			j.TaskGroups[0].Scaling = &api.ScalingPolicy{Min: new(int64(1)), Max: new(int64(4))}
		}})
		w.ExpectRunning("wide", 10*time.Second)
		w.RunFor(10 * time.Minute)
		w.Submit(bed.Gang{Name: "next", GPUs: 2, Runs: 10 * time.Minute, Meta: map[string]string{"pal_duration": "10m"}})
		w.RunFor(time.Hour)
		var got []string
		es, _ := p.Events.After(0)
		for _, e := range es {
			if e.Kind == palapi.EventResized {
				got = append(got, fmt.Sprintf("%s %s: %s, %d GPUs", e.Job, e.ForJob, e.Text, len(e.GPUs)))
			}
		}
		if want := []string{"wide default/next: shrinks from 4 to 2 members, 2 GPUs", "wide : grows from 2 to 4 members, 4 GPUs"}; !slices.Equal(got, want) {
			w.T.Errorf("%q, want %q", got, want)
		}
	})
}

// A GPU makes an event when it becomes unhealthy, and another one when it is healthy again. A GPU
// that was unhealthy before the placer started makes no event for that.
func TestEventsOfHealth(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(2, 4)
		w.Nomad.SetHealth(false, "GPU-0-0")
		p := w.StartPlacer()
		w.RunFor(10 * time.Second)
		w.Nomad.SetHealth(false, "GPU-1-1")
		w.RunFor(10 * time.Second)
		w.Nomad.SetHealth(true, "GPU-0-0", "GPU-1-1")
		w.RunFor(10 * time.Second)
		var got []string
		es, _ := p.Events.After(0)
		for _, e := range es {
			if e.Kind == palapi.EventUnhealthy || e.Kind == palapi.EventHealthy {
				got = append(got, fmt.Sprint(e.Kind, " ", strings.Join(e.GPUs, ","), " ", e.Node != ""))
			}
		}
		if want := []string{"unhealthy GPU-1-1 true", "healthy GPU-0-0 true", "healthy GPU-1-1 true"}; !slices.Equal(got, want) {
			w.T.Errorf("%q, want %q", got, want)
		}
	})
}

// An event about a state that a new placer finds has the time since which the state has lasted, so
// that subscribers do not get it twice.
func TestEventsOfWhatIsFound(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(1, 4)
		p := w.StartPlacer()
		w.Submit(bed.Gang{Name: "broken", Change: func(j *api.Job) {
			j.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", "exit 3"}
		}})
		w.Submit(bed.Gang{Name: "mistaken", Meta: map[string]string{"pal_class": "Z"}})
		w.RunFor(5 * time.Minute)
		p.Stop()
		stopped := time.Now()
		w.RunFor(time.Minute)
		p = w.StartPlacer()
		w.RunFor(time.Minute)
		var got []string
		es, _ := p.Events.After(0)
		for _, e := range es {
			got = append(got, fmt.Sprint(e.Kind, " ", e.Job, " ", !e.Since.IsZero() && e.Since.Before(stopped)))
		}
		slices.Sort(got)
		got = slices.Compact(got)
		if want := []string{"allocation broken true", "failed broken true", "lost broken true", "rejected mistaken true"}; !slices.Equal(got, want) {
			w.T.Errorf("%q, want %q", got, want)
		}
	})
}

// When an incomplete gang is stopped, the event says that it starts again; at its last stop, that
// it is not tried again.
func TestLastStopOfAGangThatFails(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(8, 8)
		p := w.StartPlacer()
		w.Submit(bed.Gang{Name: "broken", Members: 2, Runs: 6 * time.Second, Change: func(j *api.Job) {
			j.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", "[ $NOMAD_ALLOC_INDEX = 0 ] && exit 1; sleep infinity"}
		}})
		w.RunFor(3 * time.Minute)
		const why = `stopped its members are stopped: only 1 of 2 members is placed: a member failed, and Nomad is not retrying it: task "work" ended with exit code 1`
		const again, last = why + "; the gang starts again as a whole", why + "; nomad-pal does not start the gang again"
		var got []string
		es, _ := p.Events.After(0)
		for _, e := range es {
			if e.Kind == palapi.EventStopped || e.Kind == palapi.EventGivenUp {
				got = append(got, string(e.Kind)+" "+e.Text)
			}
		}
		if want := []string{again, again, last, `failed given up after 3 tries: task "work" ended with exit code 1; fix the job and run it again`}; !slices.Equal(got, want) {
			w.T.Errorf("%q, want %q", got, want)
		}
		if n := strings.Count(w.Log(), "requeueing the gang"); n != 2 {
			w.T.Errorf("the log says %d times that it is requeued, want twice", n)
		}
	})
}
