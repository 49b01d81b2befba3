// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// If the placer may not register a gang, explain and status say why it does not start although its
// GPUs are free.
func TestExplainUnregistered(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(2, 4)
		p := w.StartPlacer()
		defer beating(w, "one", p.Vitals)()
		w.RunFor(5 * time.Second)
		w.Nomad.FailBy(func(r nomadtest.Request) nomadtest.Fault {
			if r.Client == "placer-1" && r.Job != "" && !strings.HasSuffix(r.Path, "/plan") {
				return nomadtest.Failed
			}
			return nomadtest.None
		})
		w.Submit(bed.Gang{Name: "a", Members: 2, GPUs: 4, Runs: time.Minute})
		for range 20 {
			w.RunFor(3 * time.Second)
			s := snapshot(w)
			const why = "No cluster leader"
			if e, err := s.Explain(w.T.Context(), bed.Key("a")); err != nil || !strings.Contains(e.Reason.String(), why) {
				w.T.Errorf("explain: %v, %+v", err, e)
			}
			if js := p.Status().Jobs; len(js) != 1 || !strings.Contains(js[0].Reason.String(), why) {
				w.T.Errorf("status: %+v", js)
			}
		}
		w.Nomad.FailBy(nil)
		w.Excuse()
		w.ExpectFinished("a", 10*time.Minute)
	})
}
