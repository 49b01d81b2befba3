// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// Only the placer's tries count, however often Nomad itself reschedules a member within a try. A
// gang that was given up stays given up after the agent's restart.
func TestTriesAreThePlacers(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(4, 4)
		p := w.StartPlacer()
		w.Submit(bed.Gang{Name: "broken", Members: 2, GPUs: 1, Reschedules: 3, Runs: time.Second, Exit: 3})
		w.RunFor(2 * time.Minute)
		const want = "given up after 3 tries"
		for _, when := range []string{"given up", "the agent was started again"} {
			e, err := snapshot(w).Explain(t.Context(), cluster.JobKey{Namespace: "default", ID: "broken"})
			if err != nil {
				t.Fatal(err)
			}
			failed := map[int]int{}
			for _, f := range e.Failures {
				failed[f.Try]++
			}
			if e.State != gang.Failed || !strings.HasPrefix(e.Reason.String(), want) || len(failed) != 3 || failed[1] < 4 {
				t.Errorf("%s: %s, %s; failures by try %v", when, e.State, e.Reason.String(), failed)
			}
			p.Kill()
			p = w.StartPlacer()
			w.RunFor(10 * time.Minute)
		}
	})
}

// If a job is purged and run again, its tries are counted from zero. If it was only stopped, the
// count continues.
func TestTriesAfterAPurge(t *testing.T) {
	for name, purged := range map[string]bool{"purged": true, "run again without a purge": false} {
		t.Run(name, func(t *testing.T) {
			bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
				t := w.T // the T of the synctest bubble
				w.AddNodes(4, 4)
				w.StartPlacer()
				broken := bed.Gang{Name: "broken", Runs: time.Second, Exit: 3}
				for range 2 {
					w.Submit(broken)
					w.RunFor(2 * time.Minute)
					if purged {
						if _, _, err := w.Author.Jobs().Deregister("broken", true, nil); err != nil {
							t.Fatal(err)
						}
						w.RunFor(10 * time.Second)
					} else {
						broken.Meta = map[string]string{"pal_class": "B"}
					}
				}
				if purged {
					w.Submit(broken)
					w.RunFor(2 * time.Minute)
				}
				e, err := snapshot(w).Explain(t.Context(), bed.Key("broken"))
				if err != nil {
					t.Fatal(err)
				}
				if n, want := len(e.Failures), map[bool]int{true: 3, false: 6}[purged]; n != want || e.Failures[0].Try != 1 || e.Failures[n-1].Try != want {
					t.Errorf("%d failures are shown, want %d: %+v", n, want, e.Failures)
				}
			})
		})
	}
}
