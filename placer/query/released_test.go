// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Of a job that was given back to Nomad, explain says no more how it is pinned: it is not.
func TestReleasedHasNoPins(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Unchecked: true}, func(w *bed.World) {
		w.AddNodes(1, 2)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "a", Runs: time.Hour})
		w.ExpectRunning("a", 10*time.Second)
		w.RunFor(10 * time.Second)
		if err := w.Register(rewrite.Author(w.Nomad.Job(bed.Key("a")))); err != nil {
			w.T.Fatal(err)
		}
		w.RunFor(10 * time.Second)
		e, err := snapshot(w).Explain(w.T.Context(), nomad.JobKey(bed.Key("a")))
		if err != nil || e.State != gang.Native || e.Decision == nil || e.Mode != "" {
			w.T.Errorf("%v: %+v", err, e)
		}
	})
}
