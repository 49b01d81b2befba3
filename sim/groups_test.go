// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// TestTaskGroupsByHand: on two nodes of 4 GPUs, a holds 2 GPUs. A gang with a member of 4 GPUs
// and one of 2 starts beside it; a gang with two members of 3 GPUs waits, although 6 GPUs are
// free.
func TestTaskGroupsByHand(t *testing.T) {
	run := map[string]func([]trace.Job) (Outcome, error){
		"queue": func(jobs []trace.Job) (Outcome, error) {
			return Config{Jobs: jobs, Cluster: even(t, 2, 4, 1), Queue: queue.Options{Order: queue.FIFO, Placement: pal.Policy{Name: pal.Packed}}}.Run()
		},
		"plain Nomad": func(jobs []trace.Job) (Outcome, error) {
			return Nomad{Jobs: jobs, Cluster: even(t, 2, 4, 1), Seed: 1}.Run()
		},
	}
	for name, run := range run {
		for _, tc := range []struct {
			groups []trace.Group
			start  float64
		}{{[]trace.Group{{Members: 1, GPUs: 4}, {Members: 1, GPUs: 2}}, 1}, {[]trace.Group{{Members: 1, GPUs: 3}, {Members: 1, GPUs: 3}}, 100}} {
			gang := job("gang", "D", 6, 1, 300)
			gang.Groups = tc.groups
			a := job("a", "D", 2, 0, 100)
			a.MemberGPUs = 2
			out, err := run([]trace.Job{a, gang})
			if err != nil {
				t.Fatal(err)
			}
			got := out.Jobs[1]
			if got.Start != tc.start || got.GPUs != 6 {
				t.Errorf("%s: %v starts at %v on %d GPUs, want %v on 6", name, tc.groups, got.Start, got.GPUs, tc.start)
			}
		}
	}
}

// TestPreemptibleByHand: the queue stops only the job that may be stopped.
func TestPreemptibleByHand(t *testing.T) {
	low, high := job("low", "D", 4, 0, 1000), job("high", "D", 4, 200, 50)
	high.Priority = 1
	for _, preemptible := range []bool{false, true} {
		low.Preemptible = preemptible
		got := timeline(t, Config{Cluster: tinyCluster(t), RestartS: 60, Jobs: []trace.Job{low, high},
			Queue: queue.Options{Order: queue.FIFO, Preempt: true, JobPriority: true, Placement: pal.Policy{Name: pal.Packed}}})
		want := []string{"0.0 low start [0 1 2 3]", "1000.0 low finish [0 1 2 3]", "1000.0 high start [0 1 2 3]", "1050.0 high finish [0 1 2 3]"}
		if preemptible {
			want = []string{"0.0 low start [0 1 2 3]", "200.0 low preempt [0 1 2 3]", "200.0 high start [0 1 2 3]", "250.0 high finish [0 1 2 3]",
				"250.0 low resume [0 1 2 3]", "1110.0 low finish [0 1 2 3]"}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("preemptible %v (-want +got):\n%s", preemptible, d)
		}
	}
}
