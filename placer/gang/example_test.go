// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"fmt"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// The placer sees a gated job; the job waits in the queue, and starts on two GPUs. Each event says
// what happened; each effect is something that the placer must do.
func ExampleLifecycle_Step() {
	w, g := newFakeWorld(), &Lifecycle{}
	job, version := rewrite.Gate(plainJob("train", 100)), uint64(0)
	job.Version = &version // its first version: no earlier ones must be read
	happens := func(e Event) {
		effects := g.Step(e, w)
		fmt.Printf("%s → %s:", nameOf(e), g.State(w))
		for _, e := range effects {
			fmt.Print(" ", nameOf(e))
		}
		fmt.Println()
	}

	o := Observe(w.state, job)
	request, _ := w.Request(o)
	happens(Observation{Observed: o, Request: request})
	happens(Reconcile{})
	happens(Sync{})

	// The queue has decided: now the gang registers the job with its pins.
	pins := somePins("gpu-1", "gpu-2")
	pinned, err := rewrite.Pin(job, pins, rewrite.Racks{})
	if err != nil {
		panic(err)
	}
	why := pal.Decision{Chosen: &pal.Choice{Nodes: 1, PMScore: 1, Cost: 1}}
	happens(Start{Job: pinned, Pins: pins, Record: g.NewRecord(w.now, why, "")})

	// Nomad has accepted it, as the job's next version. It has no allocations yet.
	stored := RegisteredJob(pinned, job, 200, w.now)
	state := cluster.NewState()
	state.PutJob(stored)
	happens(Registered{Observe(state, stored)})
	// Output:
	// Observation → waiting:
	// Reconcile → waiting:
	// Sync → waiting: Enqueue
	// Start → committing: Commit
	// Registered → starting: Own QueueStarted Placed Log
}
