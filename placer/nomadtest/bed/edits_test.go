// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A gang gets another size while it runs, makes room for another one, and starts again:
// with the size that its author asked for last.
func TestResizedThenPreempted(t *testing.T) {
	for name, members := range map[string][2]int{"larger": {1, 3}} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(2, 2)
				w.StartPlacer()
				w.Submit(Gang{Name: "a", Members: members[0], GPUs: 1, Runs: time.Hour, Priority: 20, Meta: map[string]string{"pal_preempt": "true"}})
				w.ExpectRunning("a", 10*time.Second)
				if err := w.Edit(Key("a"), func(job *api.Job) { job.TaskGroups[0].Count = ptr(members[1]) }); err != nil {
					t.Fatal(err)
				}
				w.Expect("the new size", 30*time.Second, func() bool { return len(w.GPUs(Key("a"))) == members[1] })
				w.RunFor(20 * time.Minute)
				w.Submit(Gang{Name: "urgent", Members: 2, GPUs: 2, Runs: time.Minute, Priority: 90})
				w.ExpectRunning("urgent", 30*time.Minute)
				w.ExpectGone("a", time.Second)
				w.ExpectFinished("urgent", 10*time.Minute)
				w.ExpectRunning("a", 10*time.Minute)
				if n := len(w.GPUs(Key("a"))); n != members[1] {
					t.Errorf("it runs on %d GPUs, its author asks for %d", n, members[1])
				}
			})
		})
	}
}

// A gang becomes smaller while it runs: no two of its members get one GPU, of those that
// their predecessors give back in the same plan.
func TestResizedMembersShareNoGPU(t *testing.T) {
	for seed := range uint64(8) {
		Run(t, Options{Seed: seed}, func(w *World) {
			w.AddNodes(2, 2)
			w.StartPlacer()
			w.Submit(Gang{Name: "a", Members: 4, GPUs: 1, Runs: time.Hour})
			w.ExpectRunning("a", 10*time.Second)
			if err := w.Edit(Key("a"), func(job *api.Job) { job.TaskGroups[0].Count = ptr(3) }); err != nil {
				t.Fatal(err)
			}
			w.Expect("the new size", 30*time.Second, func() bool { return len(w.Members(Key("a"))) == 3 })
			seen := map[string]bool{}
			for _, gpu := range w.GPUs(Key("a")) {
				if seen[gpu] {
					t.Errorf("seed %d: GPU %s is given out twice", seed, gpu)
				}
				seen[gpu] = true
			}
		})
	}
}

// A gang becomes larger in the cycle in which another one would start: none gets what
// the other got.
func TestResizedBesideAStart(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Runs: time.Hour})
		w.Submit(Gang{Name: "before", Runs: 30 * time.Second})
		w.ExpectRunning("a", 10*time.Second)
		w.ExpectRunning("before", 10*time.Second)
		if err := w.Edit(Key("a"), func(job *api.Job) { job.TaskGroups[0].Count = ptr(2) }); err != nil {
			t.Fatal(err)
		}
		w.Submit(Gang{Name: "b", Runs: time.Hour})
		w.ExpectFinished("before", time.Minute)
		w.RunFor(3 * time.Second)
		given := map[string]string{}
		for _, name := range []string{"a", "b"} {
			pins, _ := rewrite.Pinned(w.Nomad.Job(Key(name)))
			for _, gpu := range pins.GPUs() {
				if given[gpu] != "" {
					t.Errorf("%s is given to %s and to %s", gpu, given[gpu], name)
				}
				given[gpu] = name
			}
		}
	})
}
