// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// The author of a running gang changes its priority: behind a gate (nomad job run), or as in
// Nomad's UI. The queue learns of it, and nothing restarts.
func TestPriorityOfRunning(t *testing.T) {
	for _, gate := range []bool{false, true} {
		for _, lower := range []bool{false, true} {
			t.Run(fmt.Sprint(gate, lower), func(t *testing.T) {
				Run(t, Options{Seed: 1}, func(w *World) {
					w.AddNodes(1, 2)
					w.StartPlacer()
					from, to := 20, 90
					if lower {
						from, to = 90, 20
					}
					g := Gang{Name: "a", Members: 2, GPUs: 1, Runs: 50 * time.Hour, Priority: from, Meta: map[string]string{"pal_preempt": "true"}}
					w.Submit(g)
					w.ExpectRunning("a", 10*time.Second)
					w.RunFor(10 * time.Minute)
					were := ids(w.Members(Key("a")))
					if gate {
						g.Priority = to
						w.Submit(g)
					} else if err := w.Edit(Key("a"), func(j *api.Job) { j.Priority = &to }); err != nil {
						t.Fatal(err)
					}
					w.RunFor(10 * time.Second)
					if now := ids(w.Members(Key("a"))); !slices.Equal(now, were) {
						t.Errorf("restarted: %v", now)
					}
					w.Submit(Gang{Name: "b", Members: 2, GPUs: 1, Runs: time.Hour, Priority: 50})
					w.RunFor(10 * time.Minute)
					if w.Running(Key("b")) != lower {
						t.Errorf("b runs: %v\n%s", w.Running(Key("b")), w.Describe())
					}
				})
			})
		}
	}
}
