// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// The ranks of a training fail because of what happens to one of them. That is no fault of the
// program, so the gang starts again, although nothing may fail twice here.
func TestFailuresThatFollow(t *testing.T) {
	for name, happens := range map[string]func(w *World, ranks []string){
		"one is drained": func(w *World, ranks []string) {
			w.Nomad.Drain(NodeID(0))
			w.RunFor(time.Second)
			w.Nomad.Exit(ranks[1], 143)
		},
		"one is drained, another hangs": func(w *World, ranks []string) {
			w.Nomad.Drain(NodeID(0))
			w.RunFor(time.Second)
			w.Nomad.Exit(ranks[1], 1)
			w.RunFor(time.Minute)
		},
		"a machine shuts down": func(w *World, ranks []string) {
			w.Nomad.Exit(ranks[0], 143)
			w.Nomad.Exit(ranks[1], 1)
			w.Nomad.Exit(ranks[2], 1)
			w.RunFor(20 * time.Second)
			w.Nomad.CrashNode(NodeID(0))
		},
		"a machine crashes": func(w *World, ranks []string) {
			w.Nomad.CrashNode(NodeID(0))
			w.Nomad.Exit(ranks[1], 1)
			w.Nomad.Exit(ranks[2], 1)
		},
		"a machine shuts down, and the agent restarts": func(w *World, ranks []string) {
			w.Nomad.Exit(ranks[0], 143)
			w.Nomad.Exit(ranks[1], 1)
			w.Nomad.Exit(ranks[2], 1)
			w.RunFor(20 * time.Second)
			w.placers[0].Kill()
			w.StartPlacer()
			w.RunFor(10 * time.Second)
			w.Nomad.CrashNode(NodeID(0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1, Placer: func(c *model.Config) { c.Retries = 0 }}, func(w *World) {
				w.AddNodes(4, 1)
				w.StartPlacer()
				w.Submit(Gang{Name: "a", Members: 3, Runs: 10 * time.Hour})
				w.ExpectRunning("a", 10*time.Second)
				w.RunFor(time.Hour)
				ranks := make([]string, 3)
				for i, m := range w.Members(Key("a")) {
					if m.Node == NodeID(0) {
						ranks[i], ranks[0] = ranks[0], m.ID
					} else {
						ranks[i] = m.ID
					}
				}
				if ranks[0] == "" {
					t.Fatal("no rank runs on the first node")
				}
				happens(w, ranks)
				w.ExpectRunning("a", 5*time.Minute)
				if n := w.decision("a").UserFailures; n != 0 {
					t.Errorf("%d failures count", n)
				}
			})
		})
	}
}

// A program fails by itself after an hour. It is given up after a minute, which explain announces,
// and another job gets the GPUs meanwhile.
func TestOwnFailureIsInDoubtForAMinute(t *testing.T) {
	Run(t, Options{Seed: 1, Placer: func(c *model.Config) { c.Retries = 0 }}, func(w *World) {
		w.AddNodes(2, 1)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, Runs: time.Hour, Exit: 1, OneExit: true})
		w.ExpectRunning("a", 10*time.Second)
		w.Submit(Gang{Name: "b", Members: 2, Runs: time.Hour})
		w.RunFor(time.Hour - 20*time.Second)
		w.Expect("in doubt", 2*time.Minute, func() bool { return w.explained("a").Reason.Kind == reason.InDoubt })
		w.ExpectRunning("b", 20*time.Second)
		w.Expect("given up", time.Minute, func() bool { return w.explained("a").State == palapi.Failed })
		w.RunFor(2 * time.Hour)
		if e := w.explained("a"); e.Reason.Kind != reason.GaveUp {
			t.Errorf("%s: %s", e.State, e.Reason)
		}
	})
}
