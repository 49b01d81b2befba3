// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// A gang that ran for an hour is drained, and another one was submitted after it. The drained gang
// returns first, in every order, and nothing says that it failed.
func TestDrainedGangKeepsItsPlace(t *testing.T) {
	for _, order := range queue.Orders() {
		t.Run(string(order), func(t *testing.T) {
			Run(t, Options{Seed: 1, Placer: func(c *model.Config) { c.Queue.Order = order }}, func(w *World) {
				w.AddNodes(1, 2)
				p := w.StartPlacer()
				w.Submit(Gang{Name: "a", Members: 2, Runs: 5 * time.Hour})
				w.ExpectRunning("a", 10*time.Second)
				w.RunFor(time.Hour)
				w.Submit(Gang{Name: "later", Members: 2, Runs: time.Hour})
				w.RunFor(time.Minute)
				w.Nomad.Drain(NodeID(0))
				w.ExpectGone("a", time.Minute)
				w.RunFor(time.Minute)
				w.Nomad.SetEligible(NodeID(0), true)
				w.ExpectRunning("a", time.Minute)
				if w.Running(Key("later")) {
					t.Error("the gang that was submitted later runs")
				}
				all, _ := p.Events.After(0)
				for _, e := range all {
					if strings.Contains(e.Text, "failed") || e.Kind == palapi.EventAllocFailed {
						t.Errorf("%s: %s", e.Kind, e.Text)
					}
				}
			})
		})
	}
}
