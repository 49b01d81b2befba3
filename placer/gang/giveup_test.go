// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"testing"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// A gang that ends before all its members ran gives back all GPUs that were reserved for it. In
// walk 43337 two GPUs were free in Nomad, but taken for the placer until the job was purged.
func TestLostHoldsNothing(t *testing.T) {
	for _, state := range []palapi.State{palapi.Starting, palapi.Lost, palapi.Ended} {
		job := plainJob("j", 1)
		g := &Lifecycle{memory: memory{known: known{Observed: Observed{Job: job, Nomad: palapi.Starting, Pins: somePins("g1", "g2")}}, Reserved: []string{"g1", "g2"}}}
		g.Step(Observation{Observed: Observed{Job: job, Nomad: state, Pins: somePins("g1", "g2")}}, newFakeWorld())
		if holds := len(g.Reserved) > 0; holds != (state == palapi.Starting) {
			t.Errorf("%s: holds %v", state, g.Reserved)
		}
	}
}
