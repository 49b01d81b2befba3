// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// Whoever plans a job again that has finished, all of it or a part, hears of all its
// members: a new version runs them again.
func TestPlanOfFinished(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // of the bubble
		w.AddNodes(2, 4)
		w.StartPlacer()
		g := bed.Gang{Name: "short", Members: 2, GPUs: 4, Runs: 5 * time.Second}
		w.Submit(g)
		w.ExpectFinished("short", time.Minute)
		for _, known := range []bool{false, true} {
			job := g.Job()
			if known { // as explain -what-if has it
				job = w.Nomad.Job(bed.Key("short"))
			}
			nomad.Canonicalize(job)
			if e, err := snapshot(w).Plan(job); err != nil || e.State != gang.Starting || e.Decision.Demand != 8 {
				t.Errorf("known to Nomad %t: %+v of %+v, %v", known, e, e.Decision, err)
			}
		}
	})
}
