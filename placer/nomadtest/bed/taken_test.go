// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// A job that only Nomad manages takes one of the GPUs of a gang that is about to start. The gang
// waits again and keeps its position, because its author has requested nothing else.
func TestAGPUTakenAsItStarts(t *testing.T) {
	met := 0
	for seed := range uint64(20) {
		Run(t, Options{Seed: seed, Unchecked: true, Placer: fifo, Nomad: nomadtest.Options{Scheduling: 100 * time.Millisecond}}, func(w *World) {
			w.AddNodes(1, 2)
			w.StartPlacer()
			submitted := time.Now()
			w.Submit(Gang{Name: "a", Members: 2, Runs: time.Hour})
			w.Submit(Gang{Name: "native", Ungated: true, Runs: time.Hour})
			w.RunFor(10 * time.Second)
			w.Submit(Gang{Name: "b", Members: 2, Runs: time.Hour})
			w.RunFor(time.Minute)
			if len(w.Members(Key("a"))) > 0 {
				return // the native job came too late
			}
			met++
			for _, j := range w.placers[0].Status().Jobs {
				if j.Job == "a" && j.Submitted.After(submitted.Add(50*time.Millisecond)) {
					w.T.Errorf("seed %d: its position is %d, and its submission is recorded %v late", seed, j.Position, j.Submitted.Sub(submitted))
				}
			}
			if strings.Contains(w.Log(), "the author requests more members than the pins have GPUs for") {
				w.T.Errorf("seed %d: it counts as scaled up:\n%s", seed, w.Describe())
			}
		})
	}
	t.Logf("the case occurred in %d of 20 walks", met)
}
