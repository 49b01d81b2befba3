// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// TestDependenciesByHand: c comes after a and b, d after a, which has finished before d is
// submitted, and e after c.
func TestDependenciesByHand(t *testing.T) {
	after := func(j trace.Job, ids ...string) trace.Job {
		j.After = ids
		return j
	}
	c := Config{Cluster: tinyCluster(t), Queue: queue.Options{Order: queue.FIFO, Placement: pal.Policy{Name: pal.Packed}},
		Jobs: []trace.Job{job("a", "D", 1, 0, 50), job("b", "D", 1, 0, 200), after(job("c", "D", 1, 10, 10), "a", "b"), after(job("e", "D", 1, 20, 10), "c"),
			after(job("d", "D", 1, 60, 10), "a")}}
	want := []string{"0.0 a start [0]", "0.0 b start [1]", "50.0 a finish [0]", "60.0 d start [0]", "70.0 d finish [0]", "200.0 b finish [1]",
		"200.0 c start [0]", "210.0 c finish [0]", "210.0 e start [0]", "220.0 e finish [0]"}
	if d := cmp.Diff(want, timeline(t, c)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	c.Jobs[4].After = []string{"none"}
	if _, err := c.Run(); err == nil || !strings.Contains(err.Error(), `job "d" comes after job "none", which is not in the trace`) {
		t.Errorf("got %v", err)
	}
}

// TestPriorityByHand: two jobs wait for a; the second goes first if priorities count.
func TestPriorityByHand(t *testing.T) {
	high := job("high", "D", 4, 20, 200)
	high.Priority = 1
	for _, counts := range []bool{false, true} {
		got := timeline(t, Config{Cluster: tinyCluster(t), Estimate: Exact, Queue: queue.Options{Order: queue.FIFO, Placement: pal.Policy{Name: pal.Packed}, JobPriority: counts},
			Jobs: []trace.Job{job("a", "D", 4, 0, 1000), job("b", "D", 4, 10, 500), high}})
		if want := map[bool]string{false: "1000.0 b start [0 1 2 3]", true: "1000.0 high start [0 1 2 3]"}[counts]; got[2] != want {
			t.Errorf("priorities count %v: %q, want %q", counts, got[2], want)
		}
	}
}

// TestArrayByHand: of an array of three jobs, two run at a time.
func TestArrayByHand(t *testing.T) {
	element := func(id string, submitS float64) trace.Job {
		j := job(id, "D", 1, submitS, 100)
		j.Array, j.Parallel = "array", 2
		return j
	}
	got := timeline(t, Config{Cluster: tinyCluster(t), Queue: queue.Options{Order: queue.FIFO, Placement: pal.Policy{Name: pal.Packed}},
		Jobs: []trace.Job{element("a", 0), element("b", 0), element("c", 0), job("d", "D", 1, 10, 10)}})
	want := []string{"0.0 a start [0]", "0.0 b start [1]", "10.0 d start [2]", "20.0 d finish [2]", "100.0 a finish [0]", "100.0 b finish [1]", "100.0 c start [0]", "200.0 c finish [0]"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
