// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"math"
	"math/rand"
	"slices"
	"testing"
)

// TestCandidates counts GPUs by state one by one, and compares with the counts in decisions.
func TestCandidates(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	c := bigCluster(t, 20, 0.5)
	g := Gang{ID: "g", Class: ClassA, MemberSets: []MemberSet{{Members: 1, GPUs: 1, Eligible: make([]bool, c.Groups())}, {Members: 1, GPUs: 1, Eligible: make([]bool, c.Groups())}}}
	sets := g.MemberSets
	for i := range 200 {
		g.MemberSets = sets[:1+i%2]
		for range 5 {
			u := r.Intn(c.NumGPUs())
			c.SetTaken(u, r.Intn(2) == 0)
			c.SetHealth(r.Intn(c.NumGPUs()), Health{Unhealthy: r.Intn(3) == 0, Quarantined: r.Intn(3) == 0, Unavailable: r.Intn(3) == 0})
			for _, set := range g.MemberSets {
				set.Eligible[r.Intn(c.Groups())] = r.Intn(4) > 0
			}
		}
		const above = 1.05
		want, outliers := Candidates{Total: c.NumGPUs()}, 0
		for u := range c.NumGPUs() {
			switch gpu := c.GPU(u); {
			case !slices.ContainsFunc(g.MemberSets, func(set MemberSet) bool { return set.Eligible[c.GroupOf(u)] }):
				want.Ineligible++
			case gpu.Health.Unhealthy:
				want.Unhealthy++
			case gpu.Health.Quarantined:
				want.Quarantined++
			case gpu.Health.Unavailable:
				want.Unavailable++
			case c.Available(u):
				want.Free++
				if gpu.Scores[ClassA.Index()] > above {
					outliers++
				}
			default:
				want.Allocated++
			}
		}
		if got := ask(c, g).candidates(); got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		if got := c.FreeOutliersFor(g, above); got != outliers {
			t.Fatalf("%d outliers are free, want %d", got, outliers)
		}
	}
}

// TestWalkCountsFree counts one by one the free GPUs of each entry of the L×V matrix, with few
// and with many groups that may not serve the gang. It also checks the PM scores in the entry's
// bin.
func TestWalkCountsFree(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	c := bigCluster(t, 20, 0.5)
	for i := range 200 {
		for range 5 {
			c.SetTaken(r.Intn(c.NumGPUs()), r.Intn(2) == 0)
		}
		g := Gang{ID: "g", Class: AppClasses()[i%4], MemberSets: []MemberSet{{Members: 3, GPUs: 2, Eligible: make([]bool, c.Groups())}}}
		share := r.Float64()
		for gi := range g.MemberSets[0].Eligible {
			g.MemberSets[0].Eligible[gi] = r.Float64() < share
		}
		for _, e := range Explain(c, g, Policy{Name: PAL}).Walk {
			want, in := 0, scores{lowest: math.MaxFloat32}
			for u := range c.NumGPUs() {
				if c.GPU(u).Binned[i%4] == e.Bin {
					in.lowest, in.highest = min(in.lowest, c.GPU(u).Scores[i%4]), max(in.highest, c.GPU(u).Scores[i%4])
				}
				if c.Available(u) && g.MemberSets[0].Eligible[c.GroupOf(u)] && c.GPU(u).Binned[i%4] <= e.Bin {
					want++
				}
			}
			if e.Free != want || e.Lowest != in.lowest || e.Highest != in.highest || in.lowest == in.highest {
				t.Fatalf("%+v: want %d free, PM scores %v", e, want, in)
			}
		}
	}
}
