// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/placer"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// The agent keeps the samples of one day.
func TestHistoryIsBounded(t *testing.T) {
	var h samples
	none := placer.NewEventLog(eventsKept, time.Now())
	for i := range samplesKept + 10 {
		h.add(palapi.Sample{GPUs: float64(i)}, none)
	}
	all := h.after(time.Time{})
	if len(all) != samplesKept || all[0].GPUs != 10 || all[len(all)-1].GPUs != samplesKept+9 {
		t.Errorf("%d samples from %g on", len(all), all[0].GPUs)
	}
}

// A page that has samples asks only for newer ones.
func TestHistoryAfter(t *testing.T) {
	var h samples
	none, at := placer.NewEventLog(eventsKept, time.Now()), func(n int) time.Time { return time.Unix(int64(n), 5) }
	for i := range 4 {
		h.add(palapi.Sample{GPUs: float64(i), At: at(i)}, none)
	}
	for after, want := range map[int]int{-1: 4, 1: 2, 3: 0, 9: 0} {
		got := h.after(at(after))
		if len(got) != want || want > 0 && got[want-1].GPUs != 3 {
			t.Errorf("after %d: %+v", after, got)
		}
	}
}

// Each placed gang is counted in exactly one sample, even if the sampler ends, because the agent is
// no longer active or its configuration is reloaded, and another one starts.
func TestPlacedCountsOnce(t *testing.T) {
	a := New(hclog.NewNullLogger(), placer.Hooks{})
	var got []int
	for term := range 3 {
		if term < 2 {
			a.hooks.Events.Add(palapi.Event{Kind: palapi.EventPlaced, Job: "a"})
			a.hooks.Events.Add(palapi.Event{Kind: palapi.EventStarted, Job: "a"})
			a.hooks.Events.Add(palapi.Event{Kind: palapi.EventPlaced, Job: "b"})
		}
		a.samples.add(palapi.Sample{}, a.hooks.Events)
	}
	for _, s := range a.samples.after(time.Time{}) {
		got = append(got, s.Placed)
	}
	if d := cmp.Diff([]int{2, 2, 0}, got); d != "" {
		t.Errorf("placed (-want +got):\n%s", d)
	}
}

// The agent takes no sample before the placer's first cycle, nor of a cluster without GPUs. After
// the first cycle it takes one.
func TestSamplesOfWhatIsKnown(t *testing.T) {
	for _, c := range []struct {
		age  float64
		gpus float64
		want bool
	}{{-1, 4, false}, {0, 4, true}, {1, 4, true}, {1, 0, false}} {
		if s, ok := sampleOf(Metrics{CycleAge: c.age, GPUs: c.gpus}, time.Now()); ok != c.want || s.GPUs != c.gpus {
			t.Errorf("%+v: %t, %+v", c, ok, s)
		}
	}
}

// The events determine which job had which GPU: until it was moved, queued again, or ended.
func TestUses(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(int64(n), 0).UTC() }
	event := func(n int, job string, kind palapi.EventKind, gpus ...string) palapi.Event {
		return palapi.Event{At: at(n), Namespace: "default", Job: job, Kind: kind, GPUs: gpus}
	}
	got := uses([]palapi.Event{
		event(1, "a", palapi.EventQueued), event(2, "a", palapi.EventPlaced, "g1", "g2"), event(3, "a", palapi.EventStarted),
		event(4, "b", palapi.EventPlaced, "g3"), event(5, "a", palapi.EventStopped), event(6, "a", palapi.EventRequeued),
		event(7, "a", palapi.EventAllocFailed, "g9"), event(8, "a", palapi.EventPlaced, "g4"), event(9, "a", palapi.EventMoved, "g5"), event(10, "a", palapi.EventFinished),
		event(11, "b", palapi.EventResized, "g3", "g4"), event(12, "b", palapi.EventFinished),
	})
	use := func(job string, from, to int, gpus ...string) palapi.Use {
		u := palapi.Use{Namespace: "default", Job: job, GPUs: gpus, From: at(from)}
		if to > 0 {
			u.To = at(to)
		}
		return u
	}
	want := []palapi.Use{use("a", 2, 6, "g1", "g2"), use("b", 4, 11, "g3"), use("a", 8, 9, "g4"), use("a", 9, 10, "g5"), use("b", 11, 12, "g3", "g4")}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("uses (-want +got):\n%s", d)
	}
}

// Names of other users' jobs are hidden in the history and on a job's GPUs.
func TestUsesAndGPUsOfOthers(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"alice": {"research", "nodes"}})
	f.has(gpuJob("research", "mine", 1), "GPU-1")
	f.has(gpuJob("default", "hers", 1), "GPU-2")
	r := f.run(openConfig).ready()
	r.agent.hooks.Events.Add(palapi.Event{Kind: palapi.EventPlaced, Namespace: "default", Job: "hers", GPUs: []string{"GPU-2"}})
	r.agent.hooks.Events.Add(palapi.Event{Kind: palapi.EventPlaced, Namespace: "research", Job: "mine", GPUs: []string{"GPU-1"}})
	for path, want := range map[string]string{
		"/v1/uses?node=one":                    "mine " + palapi.Unseen,
		"/v1/uses?node=other":                  "",
		"/v1/uses?job=mine&namespace=research": "mine",
		"/v1/uses?job=hers&namespace=default":  "",
		"/v1/gpus?node=one":                    "GPU-1 GPU-2 GPU-3 mine " + palapi.Unseen,
		"/v1/gpus?node=n1&gpu=GPU-3":           "GPU-3",
		"/v1/gpus?job=research/mine":           "GPU-1 mine",
		"/v1/gpus?job=default/hers":            "",
		"/v1/gpus?trouble=true":                "",
	} {
		status, text := r.send(http.MethodGet, path, "alice", "")
		if status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, text)
		}
		for _, name := range []string{"mine", "hers", palapi.Unseen} {
			if says, should := strings.Contains(text, name), strings.Contains(want, name); says != should {
				t.Errorf("%s says %s: %v, want %v: %s", path, name, says, should, text)
			}
		}
		for _, gpu := range []string{"GPU-1", "GPU-2", "GPU-3"} {
			if says, should := strings.Contains(text, `"id": "`+gpu+`"`), strings.Contains(want, gpu); says != should {
				t.Errorf("%s has %s: %v, want %v: %s", path, gpu, says, should, text)
			}
		}
	}
	if _, text := r.send(http.MethodGet, "/v1/uses?job=hers", agentsToken, ""); !strings.Contains(text, `"hers"`) {
		t.Errorf("without a namespace it is default: %s", text)
	}
	if status, _ := r.send(http.MethodGet, "/v1/uses?node=one", "nobody", ""); status != http.StatusForbidden {
		t.Errorf("without a right: %d", status)
	}
}
