// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"testing"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// After a job was released to Nomad, explain no longer shows pins. Its only GPU is still the one
// that was chosen.
func TestReleasedHasNoPins(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Unchecked: true}, func(w *bed.World) {
		w.AddNodes(1, 1)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "a", Runs: time.Hour})
		w.ExpectRunning("a", 10*time.Second)
		w.RunFor(10 * time.Second)
		if err := w.Register(rewrite.Author(w.Nomad.Job(bed.Key("a")))); err != nil {
			w.T.Fatal(err)
		}
		w.RunFor(10 * time.Second)
		e, err := snapshot(w).Explain(w.T.Context(), cluster.JobKey(bed.Key("a")))
		if err != nil || e.State != palapi.Native || e.Decision == nil || e.Mode != "" {
			w.T.Errorf("%v: %+v", err, e)
		}
	})
}
