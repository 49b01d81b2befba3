// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// scaled changes a job's count and keeps its pins, as nomad job scale does.
func scaled(w *bed.World, name string, count int) {
	w.T.Helper()
	job := w.Nomad.Job(bed.Key(name))
	job.TaskGroups[0].Count = &count
	if err := w.Register(job); err != nil {
		w.T.Fatal(err)
	}
}

func explained(w *bed.World, name string) *palapi.Explanation {
	w.T.Helper()
	e, err := snapshot(w).Explain(w.T.Context(), bed.Key(name))
	if err != nil {
		w.T.Fatal(err)
	}
	return e
}

// shown returns a job as the queue and status show it.
func shown(w *bed.World, name string) (j palapi.JobStatus) {
	w.T.Helper()
	for _, j := range snapshot(w).Jobs() {
		if j.Job == name {
			return j
		}
	}
	w.T.Fatalf("%s is not shown", name)
	return j
}

// The changes with which a waiting job would start now use no GPU that is reserved for a job ahead
// of it, and are shown in the form in which they can be made.
func TestWhatWouldFit(t *testing.T) {
	long := map[string]string{"pal_duration": "5h"} // a long job would delay the one ahead
	service := bed.Gang{Name: "waits", Members: 3, Service: true}
	for name, c := range map[string]struct {
		order queue.Order
		ahead bool
		waits bed.Gang
		next  []string
		try   string
	}{
		"a service": {queue.Adaptive, false, service, []string{
			"With count = 1 instead of 3, the job would fit now; change the count in the jobspec and run the job again (nomad job scale works only after the deployment)."}, "count=1"},
		"behind another":     {queue.Adaptive, true, bed.Gang{Name: "waits", Members: 3, Runs: time.Hour, Meta: long}, nil, ""},
		"alone, by priority": {queue.SRTF, false, bed.Gang{Name: "waits", Members: 3, Runs: time.Hour, Meta: long}, []string{"With count = 1 instead of 3, the job would fit now."}, "count=1"},
	} {
		t.Run(name, func(t *testing.T) {
			bed.Run(t, bed.Options{Seed: 1, Placer: func(o *model.Config) { o.Queue.Order, o.Queue.JobPriority = c.order, c.order != queue.FIFO }}, func(w *bed.World) {
				w.AddNodes(1, 4)
				w.StartPlacer()
				w.Submit(bed.Gang{Name: "runs", Members: 3, Runs: time.Hour, Meta: map[string]string{"pal_duration": "1h"}})
				w.ExpectRunning("runs", 10*time.Second)
				if c.ahead {
					w.Submit(bed.Gang{Name: "ahead", Members: 4, Runs: time.Minute, Meta: map[string]string{"pal_duration": "1m"}})
					w.RunFor(5 * time.Second)
				}
				w.Submit(c.waits)
				w.RunFor(20 * time.Second)
				e := explained(w, "waits")
				if e.State != palapi.Waiting || !slices.Equal(sentences(e.Remedies), c.next) || e.Try != c.try {
					w.T.Errorf("%s: %s (%+v): %q, to try %q; want %q, %q", e.State, e.Reason.String(), e.Wait, e.Remedies, e.Try, c.next, c.try)
				}
			})
		})
	}
}

// Explain shows the GPUs of a service's members, and no others: when it is scaled or run again
// with fewer members, during and after an update with a canary, after the loss of a node, and once it is released. Stopped replicas
// take half a minute to end.
func TestServiceShowsItsMembers(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Unchecked: true, Nomad: nomadtest.Options{Kill: 30 * time.Second}}, func(w *bed.World) {
		t := w.T
		w.AddNodes(3, 4)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "api", Members: 5, Service: true, Reschedules: 5, Change: func(j *api.Job) {
			j.TaskGroups[0].Update = &api.UpdateStrategy{Canary: new(1)}
			j.TaskGroups[0].Tasks[0].KillTimeout = new(time.Minute)
		}})
		w.ExpectRunning("api", 10*time.Second)
		w.RunFor(time.Minute)
		step := func(what string, change func() error) {
			t.Helper()
			if err := change(); err != nil {
				t.Fatal(err)
			}
			for range 120 {
				w.RunFor(time.Second)
				e, has := explained(w, "api"), w.GPUs(bed.Key("api"))
				if e.Decision == nil && e.State == palapi.Native { // only the allocations are shown
					continue
				}
				if got := chosenIDs(e.Decision.Chosen); !slices.Equal(got, has) {
					t.Fatalf("%s: it has %q, explain shows %q: %s", what, has, got, e.Headline(time.Now()))
				}
				if text := e.Headline(time.Now()); strings.Contains(text, "each replica got") && what != "" {
					t.Fatalf("%s: the placer did not choose these GPUs: %s", what, text)
				}
			}
		}
		step("", func() error { return nil })
		step("scale up", func() error { scaled(w, "api", 8); return nil })
		step("scale down", func() error { scaled(w, "api", 3); return nil })
		step("fewer in the file", func() error {
			return w.Edit(bed.Key("api"), func(j *api.Job) { j.TaskGroups[0].Count = new(2) })
		})
		step("canary", func() error {
			return w.Edit(bed.Key("api"), func(j *api.Job) {
				j.TaskGroups[0].Count, j.TaskGroups[0].Tasks[0].Env = new(3), map[string]string{"VERSION": "2"}
			})
		})
		step("promotion", func() error {
			d, _, err := w.Author.Jobs().LatestDeployment("api", nil)
			if err == nil {
				_, _, err = w.Author.Deployments().PromoteAll(d.ID, nil)
			}
			return err
		})
		step("loss", func() error { w.Nomad.CrashNode(w.Members(bed.Key("api"))[0].Node); return nil })
		step("release", func() error { return w.Register(rewrite.Author(w.Nomad.Job(bed.Key("api")))) })
		step("scale after release", func() error { scaled(w, "api", 2); return nil })
	})
}

// A gang started after the snapshot was taken, so the snapshot contains none of its members. They
// do not count as lost, although the gang's record says that they were running.
func TestReadySinceTheSnapshot(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(2, 4)
		w.StartPlacer()
		var s *query.Snapshot
		w.Submit(bed.Gang{Name: "a", Members: 2, GPUs: 4, Runs: time.Hour})
		for range 10_000 { // until its pins have been registered, but not evaluated yet
			w.RunFor(time.Millisecond)
			if s = snapshot(w); s.Model().Observed(s.Model().State.Jobs[cluster.JobKey{Namespace: "default", ID: "a"}]).Nomad == palapi.Starting {
				break
			}
		}
		w.ExpectRunning("a", 10*time.Second)
		w.RunFor(5 * time.Second)
		e, err := s.Explain(w.T.Context(), bed.Key("a"))
		if err != nil || e.State != palapi.Starting || e.Decided.IsZero() || !e.Ready.IsZero() {
			w.T.Errorf("%s, decided %v, ready %v: %v", e.State, e.Decided, e.Ready, err)
		}
		if e := explained(w, "a"); e.State != palapi.Running || e.Ready.IsZero() {
			w.T.Errorf("then %s, ready %v", e.State, e.Ready)
		}
	})
}

// A job that was scaled from zero to some members has been running since these started, not since
// it was placed.
func TestScaledFromNone(t *testing.T) {
	for _, meta := range []map[string]string{nil, {"pal_pin": "gpu", "pal_on_failure": "gang"}} {
		bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
			w.AddNodes(1, 4)
			w.StartPlacer()
			w.Submit(bed.Gang{Name: "api", Members: 2, Service: true, Meta: meta})
			w.ExpectRunning("api", 10*time.Second)
			w.RunFor(time.Hour)
			if e := explained(w, "api"); !e.Restarted.IsZero() {
				w.T.Errorf("%v: restarted at %v", meta, e.Restarted)
			}
			scaled(w, "api", 0)
			w.RunFor(time.Hour)
			scaled(w, "api", 2)
			again := time.Now()
			w.RunFor(time.Minute)
			if e := explained(w, "api"); e.State != palapi.Running || e.Restarted.Before(again) || e.Restarted.After(again.Add(30*time.Second)) {
				w.T.Errorf("%v: %s, decided %v, restarted %v, not about %v", meta, e.State, e.Decided, e.Restarted, again)
			}
		})
	}
}
