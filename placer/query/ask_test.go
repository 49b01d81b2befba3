// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// A waiting job without an estimate is asked for one: here it would start beside the queue's head,
// which waits for more GPUs than are free.
func TestAsksForAnEstimate(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		for i := range 4 { // here, jobs without an estimate are expected to run half an hour
			w.Submit(bed.Gang{Name: fmt.Sprintf("silent-%d", i), GPUs: 1, Runs: 30 * time.Minute})
		}
		w.RunFor(31 * time.Minute)
		w.Submit(bed.Gang{Name: "honest", GPUs: 1, Runs: time.Minute, Meta: map[string]string{"pal_duration": "1m"}})
		w.RunFor(2 * time.Minute)
		w.Submit(bed.Gang{Name: "half", GPUs: 2, Runs: 2 * time.Hour, Meta: map[string]string{"pal_duration": "20m"}})
		w.ExpectRunning("half", 10*time.Second)
		for _, id := range []string{"head", "small"} {
			meta := map[string]string{"pal_duration": "1m"}
			if id == "small" {
				meta = nil
			}
			w.Submit(bed.Gang{Name: id, GPUs: map[string]int{"head": 4, "small": 2}[id], Runs: time.Hour, Meta: meta})
		}
		w.RunFor(20 * time.Second)
		s := snapshot(w)
		s.Activity.Working = true
		explained := func(w *bed.World, id string) *palapi.Explanation {
			e, err := s.Explain(w.T.Context(), bed.Key(id))
			if err != nil {
				w.T.Fatal(err)
			}
			return e
		}
		for _, id := range []string{"head", "half"} {
			if e := explained(w, id); e.Ask != "" {
				w.T.Errorf("%s, whose run time is known, is asked: %q", id, e.Ask)
			}
		}
		e := explained(w, "small")
		if !strings.Contains(e.Ask, "pal_duration") {
			w.T.Errorf("%s: %q", e.Reason, e.Ask)
		}
		w.Submit(bed.Gang{Name: "small", GPUs: 2, Runs: 10 * time.Minute, Meta: map[string]string{"pal_duration": "10m"}})
		w.ExpectRunning("small", 10*time.Second)
	})
}
