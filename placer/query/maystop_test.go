// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// If a job does not say whether it may be preempted, the configuration for its class decides, and
// explain names the key. A job that forbids it is never preempted.
func TestDefaultPreempt(t *testing.T) {
	for said, stops := range map[string]bool{"": true, "false": false, "true": true} {
		bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) { c.DefaultPreempt = []pal.AppClass{pal.ClassC} }}, func(w *bed.World) {
			w.AddNodes(1, 4)
			w.StartPlacer()
			meta := map[string]string{"pal_class": "C", "pal_duration": "10h"}
			if said != "" {
				meta["pal_preempt"] = said
			}
			w.Submit(bed.Gang{Name: "long", GPUs: 4, Runs: 10 * time.Hour, Meta: meta})
			w.ExpectRunning("long", 10*time.Second)
			w.RunFor(5 * time.Minute)
			w.Submit(bed.Gang{Name: "short", GPUs: 4, Runs: 10 * time.Minute, Meta: map[string]string{"pal_duration": "10m"}})
			w.RunFor(time.Minute)
			if runs := len(w.GPUs(bed.Key("short"))) == 4; runs != stops {
				w.T.Errorf("pal_preempt %q: the short one runs: %t", said, runs)
			}
			if e := explained(w, "long"); strings.Contains(e.Note, "default_preempt allows") != (said == "") {
				w.T.Errorf("pal_preempt %q: note %q", said, e.Note)
			}
		})
	}
}
