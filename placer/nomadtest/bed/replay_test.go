// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/internal/long"
)

// The same seed gives the same walk: what happens, and what the placers log about it, is the same
// each time.
func TestReplay(t *testing.T) {
	seeds := uint64(1)
	if long.All() {
		seeds = 8
	}
	for seed := range seeds {
		var logs [2][]string
		for i := range logs {
			Run(t, Options{Seed: seed, Unchecked: true}, func(w *World) {
				w.log.keep = 1 << 30
				x := NewWalk(w, DefaultMix())
				x.Go(4 * time.Minute)
				x.Settle(40 * time.Minute)
				logs[i] = strings.SplitAfter(w.Log(), "\n")
			})
		}
		for n := range max(len(logs[0]), len(logs[1])) {
			if n >= len(logs[0]) || n >= len(logs[1]) || logs[0][n] != logs[1][n] {
				t.Errorf("seed %d: line %d of %d:\n%s\n%s", seed, n, len(logs[0]), strings.Join(logs[0][max(0, n-3):min(n+2, len(logs[0]))], ""), strings.Join(logs[1][max(0, n-3):min(n+2, len(logs[1]))], ""))
				break
			}
		}
	}
}
