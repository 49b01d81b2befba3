// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import "slices"

// SpreadOver is a wish to have the members of a member set spread over the values of
// a node attribute, as Nomad's spread block: shares to come close to, not limits.
type SpreadOver struct {
	// Weight is what it counts beside the member set's other spreads.
	Weight float64
	// Values are the attribute's value of each device group's node, by number from
	// 0; -1: it has none.
	Values []int
	// Targets are how many members each value is to have, Have how many it has
	// besides those that are to be placed.
	Targets []float64
	Have    []int
}

// liking is how much one more member is wanted where the attribute has the
// value: 1 at most, negative beyond the target (Nomad's spread score).
func (o *SpreadOver) liking(value, used int) float64 {
	if value < 0 || o.Targets[value] <= 0 {
		return -1
	}
	return (o.Targets[value] - float64(o.Have[value]+used+1)) / o.Targets[value]
}

// spread places the gang member by member, each where its member set's spreads want it
// most, and at the lowest cost there. Like Nomad it looks no further than the
// next member. nil where no member set is to be spread, or the gang does not fit so.
func (s *search) spread() []Member {
	if !slices.ContainsFunc(s.g.MemberSets, func(sh MemberSet) bool { return len(sh.Spreads) > 0 }) {
		return nil
	}
	var done []taken
	defer func() {
		for _, t := range done {
			s.c.Release(t.gang, t.placement)
		}
	}()
	var members []Member
	for i, sh := range s.g.MemberSets {
		areas := newAreas(s, i)
		each := sh.Members
		if len(sh.Spreads) > 0 {
			each = 1
		}
		for left := sh.Members; left > 0; left -= each {
			sh.Members = each
			t, ok := areas.next(s, sh)
			if !ok {
				return nil
			}
			s.c.Take(t.gang, t.placement)
			done = append(done, t)
			for _, m := range t.placement.Members {
				m.MemberSet = i
				members = append(members, m)
			}
		}
	}
	if s.g.MaxTier > 0 && s.tier(members) > s.g.MaxTier {
		return nil
	}
	return members
}

// taken is a part of a gang that has its place.
type taken struct {
	gang      Gang
	placement Placement
}

// areas are the device groups whose nodes are alike to the spreads of a member set.
type areas struct {
	spreads []SpreadOver
	of      []int   // by device group
	values  [][]int // by area and spread
	used    [][]int // members placed, by spread and value
	onNode  map[int32]int
}

func newAreas(s *search, set int) *areas {
	a := &areas{spreads: s.g.MemberSets[set].Spreads, of: make([]int, len(s.c.groups)), onNode: map[int32]int{}}
	for i := range a.spreads {
		a.used = append(a.used, make([]int, len(a.spreads[i].Targets)))
	}
	known := map[uint64]int{}
	for g := range a.of {
		if a.of[g] = -1; !s.eligible(set, int32(g)) {
			continue
		}
		var key uint64
		values := make([]int, len(a.spreads))
		for i := range a.spreads {
			values[i] = a.spreads[i].Values[g]
			key = key*uint64(len(a.spreads[i].Targets)+1) + uint64(values[i]+1)
		}
		area, ok := known[key]
		if !ok {
			area = len(a.values)
			known[key] = area
			a.values = append(a.values, values)
		}
		a.of[g] = area
	}
	return a
}

// liking is how much the next member is wanted in an area.
func (a *areas) liking(area int) float64 {
	sum, weights := 0.0, 0.0
	for i := range a.spreads {
		o, v, used := &a.spreads[i], a.values[area][i], 0
		if v >= 0 {
			used = a.used[i][v]
		}
		sum, weights = sum+o.Weight*o.liking(v, used), weights+o.Weight
	}
	if weights == 0 {
		return 0
	}
	return sum / weights
}

// next finds a place for what is left of a member set: one member where it is to be
// spread, all of it otherwise. Areas that are liked alike are searched together.
func (a *areas) next(s *search, sh MemberSet) (taken, bool) {
	likings := make([]float64, len(a.values))
	for area := range likings {
		likings[area] = a.liking(area)
	}
	levels := slices.Clone(likings)
	slices.Sort(levels)
	for _, level := range slices.Backward(slices.Compact(levels)) {
		sh.Eligible, sh.Prefer = make([]bool, len(a.of)), nil
		for g, area := range a.of {
			full := sh.Need.PerNode > 0 && a.onNode[s.c.groups[g].node] >= sh.Need.PerNode
			sh.Eligible[g] = area >= 0 && likings[area] == level && !full
		}
		part := Gang{ID: s.g.ID, Class: s.g.Class, MemberSets: []MemberSet{sh}, MaxTier: s.g.MaxTier}
		if part.GPUs() > s.c.free {
			return taken{}, false
		}
		in := newSearch(s.c, part, s.p, s.model)
		if members := in.place(); members != nil {
			a.count(s.c, members)
			return taken{part, in.measure(members)}, true
		}
	}
	return taken{}, false
}

// count takes in that members have their places.
func (a *areas) count(c *Cluster, members []Member) {
	for _, m := range members {
		a.onNode[c.groups[m.Group].node]++
		for i := range a.spreads {
			if v := a.spreads[i].Values[m.Group]; v >= 0 {
				a.used[i][v]++
			}
		}
	}
}
