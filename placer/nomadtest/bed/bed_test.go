// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"testing"
	"time"
)

// A gang waits for GPUs, gets all of them at once, works and ends. Then the next gang runs.
func TestLifeOfAGang(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 4)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, GPUs: 4, Runs: time.Minute})
		w.ExpectRunning("a", 5*time.Second)
		w.Submit(Gang{Name: "b", Members: 4, GPUs: 2, Runs: time.Minute})
		w.ExpectWaiting("b", 30*time.Second)
		w.ExpectFinished("a", time.Minute)
		w.ExpectRunning("b", 5*time.Second)
		w.ExpectFinished("b", 2*time.Minute)
	})
}
