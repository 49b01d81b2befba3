// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ciSeeds are the walks of each run of the tests; SIMULATE_FOR and SIMULATE_SEED
// say otherwise.
const ciSeeds = 30

// TestWalk walks at random, and expects that no invariant is broken and that
// everything settles once nothing goes wrong any more.
//
//	SIMULATE_SEED=7    one walk, with the placer's log; what Nomad and its authors
//	                   do is the same again, but of several things that are due at
//	                   one instant the placer's own select takes any (1 of 5 walks
//	                   differs somewhere): run it several times
//	SIMULATE_FOR=10m   as many walks as that takes, from SIMULATE_FROM on
func TestWalk(t *testing.T) {
	if text := os.Getenv("SIMULATE_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		walk(t, seed, true)
		return
	}
	from, _ := strconv.ParseUint(os.Getenv("SIMULATE_FROM"), 10, 64)
	long, _ := time.ParseDuration(os.Getenv("SIMULATE_FOR"))
	began, sum, failed := time.Now(), map[string]int{}, 0
	for seed := from; long == 0 && seed < from+ciSeeds || time.Since(began) < long; seed++ {
		counts, ok := walk(t, seed, false)
		for what, n := range counts {
			sum[what] += n
		}
		sum["walks"]++
		if !ok {
			failed++
		}
		if failed == 10 {
			t.Fatalf("10 of %d walks failed", sum["walks"])
		}
	}
	var lines []string
	for _, what := range slices.Sorted(maps.Keys(sum)) {
		lines = append(lines, fmt.Sprintf("%8d %s", sum[what], what))
	}
	t.Logf("what happened:\n%s", strings.Join(lines, "\n"))
}

// walk walks one seed.
func walk(t *testing.T, seed uint64, verbose bool) (counts map[string]int, ok bool) {
	var open, broken []string
	ok = t.Run(fmt.Sprint(seed), func(t *testing.T) {
		Run(t, Options{Seed: seed, Unchecked: true, Partial: 90 * time.Second}, func(w *World) {
			x := NewWalk(w, DefaultMix())
			counts = x.Counts
			x.Go(4 * time.Minute)
			open, broken = x.Settle(40*time.Minute), w.Broken()
			counts["steps"] = w.Nomad.Steps()
			if len(open)+len(broken) == 0 {
				return
			}
			t.Errorf("replay with: SIMULATE_SEED=%d go test -v -run TestWalk ./placer/nomadtest/bed\nbroken:\n%s\nnot settled:\n%s",
				seed, strings.Join(broken, "\n"), strings.Join(open, "\n"))
			if verbose {
				t.Logf("at the end:\n%s\n%s", w.Describe(), w.Log())
			}
		})
	})
	return counts, ok
}
