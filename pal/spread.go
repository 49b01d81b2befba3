// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import "slices"

// SpreadOver asks to spread the members of a member set over the values of a node attribute, as
// Nomad's spread block does. The targets are aims, not limits.
type SpreadOver struct {
	// Weight is relative to the weights of the member set's other spreads.
	Weight float64
	// Values contains, for each device group, the index of the attribute's value on the group's
	// node. Indices begin at 0, and -1 means that the node lacks the attribute.
	Values []int
	// Targets is the number of members that should run on nodes with each value.
	Targets []float64
}

// boost returns how desirable one more member is on nodes with this value: at most 1, and negative
// beyond the target. The formula is that of Nomad's spread iterator, so that a gang is spread as
// Nomad would spread it.
func (o *SpreadOver) boost(value, used int) float64 {
	if value < 0 || o.Targets[value] <= 0 {
		return -1
	}
	return (o.Targets[value] - float64(used+1)) / o.Targets[value]
}

// spread places the gang member by member. Each member goes to the nodes with the highest boost. Of
// these nodes, a replica goes to the nodes with the fewest members of its set. Among the remaining
// nodes, the lowest cost wins. The result is nil if no member set must be spread, or if the gang
// does not fit when it is spread.
func (s *search) spread() []Member {
	if !s.spreads() {
		return nil
	}
	var placed []placedPart
	defer func() {
		for _, t := range placed {
			s.c.Release(t.gang, t.placement)
		}
	}()
	var members []Member
	for i, set := range s.g.MemberSets {
		areas := newAreas(s, i)
		each := set.Members // a set without spreads is placed in one step
		if len(set.Spreads) > 0 || s.g.Replicas {
			each = 1
		}
		for left := set.Members; left > 0; left -= each {
			set.Members = each
			t, ok := areas.next(s, set)
			if !ok {
				return nil
			}
			s.c.Take(t.gang, t.placement)
			placed = append(placed, t)
			for _, m := range t.placement.Members {
				m.MemberSet = i
				members = append(members, m)
			}
		}
	}
	if s.g.MaxTier > 0 && (layout{s.c, &s.g, members}).tier() > s.g.MaxTier {
		return nil
	}
	return members
}

// spreads reports whether some members should be spread. A single replica need not be spread.
func (s *search) spreads() bool {
	several := s.g.Replicas && (len(s.g.MemberSets) > 1 || s.g.MemberSets[0].Members > 1)
	return several || slices.ContainsFunc(s.g.MemberSets, func(set MemberSet) bool {
		return len(set.Spreads) > 0
	})
}

// placedPart is a part of a gang, and its placement.
type placedPart struct {
	gang      Gang
	placement Placement
}

// areas divides the device groups into areas, by the values that their nodes have. All groups of an
// area are equal for the spreads of a member set, so one search covers the whole area.
type areas struct {
	spreads []SpreadOver
	of      []int         // area of each device group; -1: not eligible
	values  [][]int       // by area and spread
	used    [][]int       // members placed, by spread and value
	onNode  map[int32]int // members by node
	// replicas is set if the members are replicas. If it is set, nodes with the fewest members come
	// first among device groups with the same boost.
	replicas bool
}

// newAreas puts device groups into one area if their nodes have the same value of every spread.
func newAreas(s *search, set int) *areas {
	a := &areas{spreads: s.g.MemberSets[set].Spreads, of: make([]int, len(s.c.groups)), onNode: map[int32]int{}, replicas: s.g.Replicas}
	for i := range a.spreads {
		a.used = append(a.used, make([]int, len(a.spreads[i].Targets)))
	}
	known := map[uint64]int{}
	for g := range a.of {
		a.of[g] = -1
		if !s.eligible(set, int32(g)) {
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

// boost returns how desirable the next member is in an area: the mean over the spreads, by weight.
func (a *areas) boost(area int) float64 {
	sum, weights := 0.0, 0.0
	for i := range a.spreads {
		o, v := &a.spreads[i], a.values[area][i]
		used := 0
		if v >= 0 {
			used = a.used[i][v]
		}
		sum, weights = sum+o.Weight*o.boost(v, used), weights+o.Weight
	}
	if weights == 0 {
		return 0
	}
	return sum / weights
}

// wanted says how desirable a device group is for the next member.
type wanted struct {
	boost float64
	there int // members on the node; 0 if the members are not replicas
}

// more reports whether w is more desirable than o for the member.
func (w wanted) more(o wanted) bool {
	return w.boost > o.boost || w.boost == o.boost && w.there < o.there
}

// next places the next part of a member set. The next part is one member if the set must be spread,
// otherwise all members. The search starts with the most desirable device groups. Among equally
// desirable groups, the cost decides.
func (a *areas) next(s *search, set MemberSet) (placedPart, bool) {
	boosts, at := make([]float64, len(a.values)), make([]wanted, len(a.of))
	for area := range boosts {
		boosts[area] = a.boost(area)
	}
	for g, area := range a.of {
		if area >= 0 {
			at[g].boost = boosts[area]
		}
		if a.replicas {
			at[g].there = a.onNode[s.c.groups[g].node]
		}
	}
	part := Gang{ID: s.g.ID, Class: s.g.Class, MemberSets: []MemberSet{set}, MaxTier: s.g.MaxTier, Replicas: s.g.Replicas && s.g.Sharing != nil, Sharing: s.g.Sharing}
	if part.GPUs() > s.c.free {
		return placedPart{}, false
	}
	for w, ok := a.most(at, nil); ok; w, ok = a.most(at, &w) {
		set.Eligible = make([]bool, len(a.of))
		set.Prefer, set.Spreads = nil, nil
		for g, area := range a.of {
			full := set.Need.PerNode > 0 && a.onNode[s.c.groups[g].node] >= set.Need.PerNode
			set.Eligible[g] = area >= 0 && at[g] == w && !full
		}
		part.MemberSets = []MemberSet{set}
		in := newSearch(s.c, part, s.p, s.model)
		members := in.placeBeside()
		if members != nil {
			a.add(s.c, members)
			return placedPart{part, Predict(s.c, part, members)}, true
		}
	}
	return placedPart{}, false
}

// most returns the most desirable value in `at`. If `below` is not nil, only values that are less
// desirable than `below` count.
func (a *areas) most(at []wanted, below *wanted) (most wanted, ok bool) {
	for g, w := range at {
		if a.of[g] >= 0 && (below == nil || below.more(w)) && (!ok || w.more(most)) {
			most, ok = w, true
		}
	}
	return most, ok
}

// add counts members that have been placed.
func (a *areas) add(c *Cluster, members []Member) {
	for _, m := range members {
		a.onNode[c.groups[m.Group].node]++
		for i := range a.spreads {
			v := a.spreads[i].Values[m.Group]
			if v >= 0 {
				a.used[i][v]++
			}
		}
	}
}
