// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// If the agent's token may not register jobs, a warning appears after the first start that failed
// for this reason: one for all jobs of a namespace, until the token has the right.
func TestDeniedStartsWarn(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Unchecked: true}, func(w *bed.World) {
		w.AddNodes(2, 4)
		reads := []string{"list-jobs", "read-job", "variables", "read-variables"}
		tokens := func(of ...string) {
			w.Nomad.SetTokens(map[string]nomadtest.Token{
				"": {Management: true}, "agent": {Nodes: true, Namespaces: map[string][]string{"*": slices.Concat(reads, of)}},
			})
		}
		tokens()
		p := w.StartPlacerAs("agent")
		w.RunFor(5 * time.Second)
		if got := p.Status().Warnings; len(got) > 0 {
			w.T.Errorf("before any start: %q", got)
		}
		w.Submit(bed.Gang{Name: "a", Members: 1, GPUs: 4, Runs: time.Hour})
		w.Submit(bed.Gang{Name: "b", Members: 1, GPUs: 4, Runs: time.Hour})
		w.RunFor(10 * time.Second)
		got := p.Status().Warnings
		if len(got) != 1 || !strings.Contains(got[0], `2 jobs of namespace "default"`) || !strings.Contains(got[0], `"submit-job"`) {
			w.T.Errorf("denied: %q", got)
		}
		tokens("submit-job", "alloc-lifecycle")
		w.ExpectRunning("a", 10*time.Minute)
		w.ExpectRunning("b", 10*time.Minute)
		w.RunFor(5 * time.Second)
		if got := p.Status().Warnings; len(got) > 0 {
			w.T.Errorf("allowed: %q", got)
		}
	})
}
