// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"fmt"
	"slices"
	"sort"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Tradeoff is what a gang would get now if its author asked for something else.
type Tradeoff struct {
	// Change is what would be said, as explain -what-if takes it: "pal_class=B", "count=2".
	Change string `json:"change"`
	// Choice are the GPUs; there is none if it would not fit.
	Choice *pal.Choice `json:"choice,omitempty"`
}

// tradeoffs are other application classes, and a smaller count, that change the answer on
// the GPUs that are free now: whether the gang fits, on which GPUs, how close together.
// count is the key of its number of members.
func (s *Snapshot) tradeoffs(c *pal.Cluster, g pal.Gang, count string) (out []Tradeoff) {
	find := func(g pal.Gang) (pal.Placement, bool) {
		f, _, ok := s.m.Queue.Look(c, g)
		return f.Placement, ok
	}
	own, fits := find(g)
	add := func(change string, g pal.Gang, at pal.Placement, ok bool) {
		t := Tradeoff{Change: change}
		if ok {
			t.Choice = pal.Describe(c, g, at)
		}
		out = append(out, t)
	}
	for _, class := range pal.AppClasses() {
		other := g
		if other.Class = class; class == g.Class {
			continue
		}
		if at, ok := find(other); ok != fits || ok && !slices.Equal(sorted(at.GPUs()), sorted(own.GPUs())) {
			add(fmt.Sprintf("pal_class=%s", class), other, at, ok)
		}
	}
	if len(g.MemberSets) != 1 {
		return out
	}
	// The largest count that fits, or that fits closer together.
	better := func(n int) bool {
		at, ok := find(withMembers(g, n))
		return ok && (!fits || at.Tier < own.Tier)
	}
	if n := sort.Search(max(0, g.MemberSets[0].Members-1), func(i int) bool { return !better(i + 1) }); n > 0 {
		fewer := withMembers(g, n)
		at, ok := find(fewer)
		add(fmt.Sprintf("%s=%d", count, n), fewer, at, ok)
	}
	return out
}

func sorted(gpus []int) []int { return slices.Sorted(slices.Values(gpus)) }

// withMembers is a gang of one member set with another number of members.
func withMembers(g pal.Gang, n int) pal.Gang {
	g.MemberSets = slices.Clone(g.MemberSets)
	g.MemberSets[0].Members = n
	return g
}
