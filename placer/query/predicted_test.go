// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// Pins by class let Nomad choose: explain tells which GPUs a service has, at its start and
// after Nomad has replaced a member, and which were predicted, if it has others.
func TestPredictedAndGot(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // of the bubble
		w.AddNodes(1, 8)
		w.StartPlacer()
		others := 0
		check := func(name string) *query.Explanation {
			e, err := snapshot(w).Explain(t.Context(), nomad.JobKey{Namespace: "default", ID: name})
			if err != nil || e.Decision == nil || e.Decision.Chosen == nil || len(e.Allocations) != 1 {
				t.Fatalf("%s: %+v, %v", name, e, err)
			}
			if got := chosenIDs(e.Decision.Chosen); !slices.Equal(got, e.Allocations[0].GPUs) {
				t.Errorf("%s: %v stand as chosen, it has %v", name, got, e.Allocations[0].GPUs)
			}
			if e.Predicted != nil {
				if others++; slices.Equal(chosenIDs(e.Predicted), e.Allocations[0].GPUs) {
					t.Errorf("%s: predicted is what it has", name)
				}
			}
			return e
		}
		for i := range 4 {
			name := fmt.Sprint("svc-", i)
			w.Submit(bed.Gang{Name: name, GPUs: 1, Service: true})
			w.ExpectRunning(name, 10*time.Second)
			w.RunFor(5 * time.Second)
			check(name)
		}
		if others == 0 {
			t.Error("Nomad gave each what was predicted: the test shows nothing")
		}
		c, err := nomad.NewClient(w.Nomad.Config("author", ""), "")
		if err != nil {
			t.Fatal(err)
		}
		moved := false
		for range 5 {
			was := check("svc-0").Allocations[0]
			if err := c.StopAlloc(t.Context(), nomad.JobKey{Namespace: "default", ID: "svc-0"}, was.ID); err != nil {
				t.Fatal(err)
			}
			w.RunFor(15 * time.Second)
			moved = moved || !slices.Equal(check("svc-0").Allocations[0].GPUs, was.GPUs)
		}
		if !moved {
			t.Error("the replacements all got the same GPU: the test shows nothing")
		}
	})
}

func chosenIDs(c *pal.Choice) (ids []string) {
	for _, m := range c.Members {
		for _, u := range m.GPUs {
			ids = append(ids, u.ID)
		}
	}
	slices.Sort(ids)
	return ids
}
