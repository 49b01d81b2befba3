// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"slices"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// Nomad keeps six versions of a job. After edits that do not fit, the running version may be gone
// from Nomad, and the placer that knew it may have ended. The gang still gets its pins back when
// its author runs the first file again.
func TestEditsPushOutWhatRuns(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(2, 4)
		first := w.StartPlacer()
		g := bed.Gang{Name: "a", Members: 2, GPUs: 2, Runs: 10 * time.Hour, Meta: map[string]string{"pal_duration": "10h"}}
		w.Submit(g)
		w.ExpectRunning("a", 10*time.Second)
		had := ids(w, "a")
		for n := range 8 {
			wide := g
			wide.Members = 5 + n
			w.Submit(wide)
			w.RunFor(5 * time.Second)
		}
		first.Kill()
		w.StartPlacer()
		w.RunFor(time.Minute)
		if e := explained(w, "a"); e.State != palapi.Resubmitted || e.Reason.Kind != reason.RunsOnAsBefore {
			w.T.Errorf("%s: %q, want that it keeps running as before", e.State, e.Reason.String())
		}
		w.Submit(g)
		w.RunFor(time.Minute)
		if e := explained(w, "a"); e.State != palapi.Running || !slices.Equal(ids(w, "a"), had) {
			w.T.Errorf("%s: %s, members %v, had %v", e.State, e.Reason.String(), ids(w, "a"), had)
		}
	})
}

// ids returns the allocation IDs of a job's members.
func ids(w *bed.World, job string) (out []string) {
	for _, m := range w.Members(bed.Key(job)) {
		out = append(out, m.ID)
	}
	return out
}
