// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"fmt"
	"testing"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// If more gangs fail at once than the placer records failures, it still retries each gang, and
// finally gives it up.
func TestMassFailure(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) { c.Retries = 1 }}, func(w *bed.World) {
		const gangs = 124 // more than it records
		w.AddNodes(gangs/4, 8)
		w.StartPlacer()
		for i := range gangs {
			w.Submit(bed.Gang{Name: fmt.Sprint("j-", i), Members: 2, GPUs: 1, Runs: time.Minute, Exit: 1, OneExit: true})
		}
		w.RunFor(6 * time.Minute)
		s, states := snapshot(w), map[palapi.State]int{}
		for i := range gangs {
			e, err := s.Explain(w.T.Context(), cluster.JobKey(bed.Key(fmt.Sprint("j-", i))))
			if err != nil {
				w.T.Fatal(err)
			}
			states[e.State]++
		}
		if len(states) != 1 || states[palapi.Failed] != gangs {
			w.T.Errorf("%v, want all %s", states, palapi.Failed)
		}
	})
}
