// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// In the stored runs on real Nomad, plain Nomad tries waiting jobs oldest first, as the simulator's
// plain Nomad does. Of two jobs with the same request that wait at the same time, the newer is
// hardly ever placed first.
func TestPlainNomadServesOldestFirst(t *testing.T) {
	t.Parallel()
	r, err := readReport("../../results/replay.json")
	if err != nil {
		t.Fatal(err)
	}
	type job struct{ submitted, placed time.Time }
	pairs, overtaken := 0, 0
	for _, l := range r.Runs {
		if !strings.HasPrefix(l.Scheduler, "nomad") {
			continue
		}
		for _, raw := range l.Raw {
			waited := map[int][]job{} // jobs of one allocation, by its GPUs
			for _, j := range raw.Jobs {
				if j.Allocations == 1 && // a gang is placed in parts
					!j.PlacedAt.IsZero() && j.PlacedAt.Sub(j.SubmittedAt) > time.Second {
					waited[j.GPUsEach] = append(waited[j.GPUsEach], job{j.SubmittedAt, j.PlacedAt})
				}
			}
			for _, alike := range waited {
				slices.SortFunc(alike, func(a, b job) int { return a.submitted.Compare(b.submitted) })
				for i, first := range alike {
					for _, second := range alike[i+1:] {
						if !second.submitted.Before(first.placed) {
							continue // they did not wait at the same time
						}
						if pairs++; second.placed.Before(first.placed.Add(-300 * time.Millisecond)) { // tolerance: placing takes time
							overtaken++
						}
					}
				}
			}
		}
	}
	t.Logf("%d of %d pairs in order", pairs-overtaken, pairs)
	if pairs < 100 || 20*overtaken > pairs {
		t.Errorf("in %d of %d pairs the older job was overtaken, want at least 100 pairs and at most one in 20 overtaken", overtaken, pairs)
	}
}
