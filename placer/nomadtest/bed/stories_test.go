// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// A gang that its author runs again is drained before the placer can give it its
// pins back: Nomad drops its blocked evaluation and calls it dead, and it is
// started anew all the same (walk 212).
func TestDrainedBehindItsGate(t *testing.T) {
	Run(t, Options{Seed: 212}, func(w *World) {
		w.AddNodes(2, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 1, GPUs: 1, Runs: time.Minute})
		w.ExpectRunning("a", 5*time.Second)
		back := w.Nomad.Fail("", "GET /v1/job/a/*", nomadtest.TooMany, -1)
		if err := w.Rerun(Key("a")); err != nil {
			t.Fatal(err)
		}
		w.RunFor(time.Second)
		for n := range 2 {
			w.Nomad.Drain(NodeID(n))
		}
		w.ExpectGone("a", 5*time.Second)
		if back() == 0 {
			t.Error("the placer did not ask")
		}
		for n := range 2 {
			w.Nomad.SetEligible(NodeID(n), true)
		}
		w.ExpectFinished("a", 10*time.Minute)
	})
}
