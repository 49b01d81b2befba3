// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// Jobs in a namespace that was created while the placer runs are served like others, and their GPUs
// become free when they end. Nomad's event stream omits them until the placer subscribes again.
func TestNewNamespace(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) { c.Resync = 10 * time.Minute }}, func(w *bed.World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		w.RunFor(time.Minute)
		w.Nomad.AddNamespace("new")
		w.RunFor(20 * time.Second)
		for _, name := range []string{"first", "second"} {
			w.Submit(bed.Gang{Name: name, Namespace: "new", GPUs: 4, Runs: 30 * time.Second})
		}
		first, second := nomadtest.Key{Namespace: "new", ID: "first"}, nomadtest.Key{Namespace: "new", ID: "second"}
		w.Expect("the first starts", 10*time.Second, func() bool { return w.Running(first) })
		w.Expect("the second starts when the first has ended", 45*time.Second, func() bool { return w.Running(second) })
		if strings.Contains(w.Log(), "lost touch") {
			w.T.Error("the log says that it lost touch with Nomad")
		}
	})
}
