// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// change makes a change to the cluster that may or may not affect a search.
func change(t *rapid.T, c *Cluster) {
	u := rapid.IntRange(0, c.NumGPUs()-1).Draw(t, "gpu")
	yes := rapid.Bool().Draw(t, "yes")
	switch rapid.IntRange(0, 2).Draw(t, "change") {
	case 0:
		c.SetTaken(u, yes)
	case 1:
		c.SetHealth(u, Health{Unhealthy: yes})
	case 2:
		c.SetFree(rapid.IntRange(0, c.NumNodes()-1).Draw(t, "node"), Resources{MemoryMB: rapid.IntRange(0, 5).Draw(t, "free")})
	}
}

// Whatever changes after a placement was found, its explanation equals a new one, except for the
// choice.
func TestExplainFoundIsExplain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		c := d.cluster(t)
		p := policy(rapid.SampledFrom(Policies()).Draw(t, "policy"))
		found := p
		found.OutlierThreshold = rapid.SampledFrom([]float64{0, 1.05, 1.5}).Draw(t, "avoid")
		f, ok := Find(c, d.gang, found)
		if !ok {
			return
		}
		for range rapid.IntRange(0, 2).Draw(t, "changes") {
			change(t, c)
		}
		want := Explain(c, d.gang, p)
		now, fits := Place(c, d.gang, p)
		wantBest := fits && slices.Equal(slices.Sorted(slices.Values(now.GPUs())), slices.Sorted(slices.Values(f.GPUs())))
		want.Placed, want.Reason, want.Chosen = true, reason.Reason{}, Describe(c, d.gang, f.Placement)
		got, best := ExplainFound(c, d.gang, p, f)
		if diff := cmp.Diff(want, got); diff != "" || best != wantBest {
			t.Fatalf("best is %v, want %v; %s", best, wantBest, diff)
		}
	})
}

// A search that avoids outliers chooses as if they were taken.
func TestOutlierThreshold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		c, held := d.cluster(t), d.cluster(t)
		above := rapid.SampledFrom([]float64{1.05, 1.5, 9}).Draw(t, "above")
		p := policy(rapid.SampledFrom(Policies()).Draw(t, "policy"))
		for range rapid.IntRange(0, 3).Draw(t, "rounds") { // counts must follow changes
			u, taken := rapid.IntRange(0, c.NumGPUs()-1).Draw(t, "gpu"), rapid.Bool().Draw(t, "taken")
			c.Outliers(d.gang.Class, above)
			c.SetTaken(u, taken)
			held.SetTaken(u, taken)
		}
		outliers := 0
		for u := range held.NumGPUs() {
			if float64(held.GPU(u).Scores[d.gang.Class.Index()]) > above {
				held.SetTaken(u, true)
				outliers++
			}
		}
		want, fits := Place(held, d.gang, p)
		p.OutlierThreshold = above
		got, ok := Place(c, d.gang, p)
		if ok != fits || !cmp.Equal(got, want) {
			t.Fatalf("%v %v, want %v %v", ok, got, fits, want)
		}
		if n := c.Outliers(d.gang.Class, above); n != outliers {
			t.Fatalf("%d outliers, want %d", n, outliers)
		}
	})
}

// The packed placement that Explain compares with is the one that Packed would choose, whatever the
// policy, and also for a gang with a limit on its tier.
func TestPackedIsPacked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		c := d.cluster(t)
		p := policy(rapid.SampledFrom(Policies()).Draw(t, "policy"))
		p.OutlierThreshold = rapid.SampledFrom([]float64{0, 1.05, 1.5}).Draw(t, "avoid")
		d.gang.MaxTier = rapid.SampledFrom([]Tier{0, TierNUMA, TierNode, TierRack, TierCluster}).Draw(t, "limit")
		got := Explain(c, d.gang, p)
		if !got.Placed {
			return
		}
		var want *Choice
		if pl, ok := Place(c, d.gang, Policy{Name: Packed}); ok {
			want = Describe(c, d.gang, pl)
		}
		if diff := cmp.Diff(want, got.Packed); diff != "" {
			t.Fatal(diff)
		}
	})
}
