// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"fmt"
	"math/bits"
	"slices"
)

// Place chooses GPUs for the gang among those available. ok is false where the
// gang does not fit now; [Explain] says why. The cluster is left as it is.
//
// A gang never mixes GPU models unless its shapes ask for different ones: where
// several models would do, each is tried and the lowest cost wins, on ties the
// model that comes first in the cluster.
//
// What the shapes prefer comes before any cost: the first preference that holds
// the whole gang wins.
//
// Cost: a few passes over the device groups, plus the GPUs of those chosen, for
// each preference tried.
func Place(c *Cluster, g Gang, p Policy) (pl Placement, ok bool) {
	pl, s := place(c, g, p)
	return pl, s != nil
}

// place also returns the search that found the placement, nil if none did.
func place(c *Cluster, g Gang, p Policy) (best Placement, by *search) {
	if g.GPUs() == 0 || g.GPUs() > c.free {
		return Placement{}, nil
	}
	for i := range g.preferences() {
		if best, by = placeWithin(c, g.preferring(i), p); by != nil {
			return best, by
		}
	}
	return placeWithin(c, g, p)
}

// placeWithin knows no preferences.
func placeWithin(c *Cluster, g Gang, p Policy) (best Placement, by *search) {
	for _, m := range modelsFor(c, g) {
		s := newSearch(c, g, p, m)
		members := s.place()
		if members == nil {
			continue
		}
		if pl := s.measure(members); by == nil || pl.Cost() < best.Cost() {
			best, by = pl, s
		}
	}
	return best, by
}

// preferences is how many preferences there are to try.
func (g Gang) preferences() int {
	n := 0
	for i := range g.Shapes {
		n = max(n, len(g.Shapes[i].Prefer))
	}
	return n
}

// preferring is the gang with the i-th preference of each shape, the last where
// a shape has fewer, as all that is eligible.
func (g Gang) preferring(i int) Gang {
	g.Shapes = slices.Clone(g.Shapes)
	for k := range g.Shapes {
		if s := &g.Shapes[k]; len(s.Prefer) > 0 {
			s.Eligible = s.Prefer[min(i, len(s.Prefer)-1)]
		}
	}
	return g
}

// Measure is the placement that results from running the gang's members on the
// given GPUs: its tier, PM score and penalty.
func Measure(c *Cluster, g Gang, members []Member) Placement {
	return newSearch(c, g, Policy{}, anyModel).measure(members)
}

const anyModel = -1

// modelsFor lists the models to try: those that every shape accepts, or
// anyModel where no single one does.
func modelsFor(c *Cluster, g Gang) []int {
	if len(c.models) == 1 {
		return []int{0}
	}
	votes := make([]int, len(c.models))
	for i := range g.Shapes {
		accepts := make([]bool, len(c.models))
		for gi := range c.groups {
			if g.Shapes[i].Eligible == nil || g.Shapes[i].Eligible[gi] {
				accepts[c.groups[gi].model] = true
			}
		}
		for m, a := range accepts {
			if a {
				votes[m]++
			}
		}
	}
	var common []int
	for m, v := range votes {
		if v == len(g.Shapes) {
			common = append(common, m)
		}
	}
	if common == nil {
		return []int{anyModel}
	}
	return common
}

// search is one attempt to place one gang on GPUs of one model (or of any,
// where its shapes ask for different ones).
type search struct {
	c       *Cluster
	g       Gang
	p       Policy
	k       int // index of the gang's class
	n       int // GPUs in demand
	model   int
	all     []int32 // every device group
	open    []int32 // those with an available GPU
	values  []PMScore
	toValue [][]int // model → bin → index into values
	walked  []Entry // what pal walked, for Explain
}

func newSearch(c *Cluster, g Gang, p Policy, model int) *search {
	k := g.Class.Index()
	if k < 0 {
		panic(fmt.Sprintf("pal: gang %q: application class %q", g.ID, g.Class))
	}
	s := &search{c: c, g: g, p: p, k: k, n: g.GPUs(), model: model, toValue: make([][]int, len(c.models))}
	for m := range c.models {
		if model == anyModel || model == m {
			s.values = append(s.values, c.models[m].values[k]...)
		}
	}
	slices.Sort(s.values)
	s.values = slices.Compact(s.values)
	for m := range c.models {
		if model != anyModel && model != m {
			continue
		}
		for _, v := range c.models[m].values[k] {
			i, _ := slices.BinarySearch(s.values, v)
			s.toValue[m] = append(s.toValue[m], i)
		}
	}
	return s
}

// place returns the members, nil where the gang does not fit.
func (s *search) place() []Member {
	if len(s.values) == 0 {
		return nil
	}
	worst := len(s.values) - 1
	switch s.p.Name {
	case PAL:
		return s.walk()
	case PMFirst:
		return s.pmFirst(s.openGroups(), worst)
	case Packed:
		return s.packed()
	case Spread:
		return s.greedy(spreadOut)
	case Random:
		return s.random()
	}
	panic(fmt.Sprintf("pal: placement policy %q", s.p.Name))
}

// eligible says whether the device group may serve the shape.
func (s *search) eligible(shape int, group int32) bool {
	if s.model != anyModel && int(s.c.groups[group].model) != s.model {
		return false
	}
	e := s.g.Shapes[shape].Eligible
	return e == nil || e[group]
}

// eligibleForAll says whether the group may serve every shape.
func (s *search) eligibleForAll(group int32) bool {
	for i := range s.g.Shapes {
		if !s.eligible(i, group) {
			return false
		}
	}
	return true
}

// counts are the group's available GPUs up to each bin of its model.
func (s *search) counts(group int32) []uint16 {
	g := &s.c.groups[group]
	return s.c.upTo[s.k][g.counts[s.k]:][:len(s.c.models[g.model].values[s.k])]
}

// upTo is the number of the group's available GPUs whose bin value is at most
// values[v].
func (s *search) upTo(group int32, v int) int {
	n := 0
	to := s.toValue[s.c.groups[group].model]
	for b, count := range s.counts(group) {
		if b >= len(to) || to[b] > v { // no bins: a model that is not searched
			break
		}
		n = int(count)
	}
	return n
}

func (s *search) everywhere() []int32 {
	if s.all == nil {
		s.all = make([]int32, len(s.c.groups))
		for i := range s.all {
			s.all[i] = int32(i)
		}
	}
	return s.all
}

// openGroups are the device groups with an available GPU, in order: no other
// can serve anybody.
func (s *search) openGroups() []int32 {
	if s.open == nil {
		s.open = make([]int32, 0, min(len(s.c.groups), s.c.free))
		for w, word := range s.c.open {
			for ; word != 0; word &= word - 1 {
				s.open = append(s.open, int32(64*w+bits.TrailingZeros64(word)))
			}
		}
	}
	return s.open
}

// holdsAll says whether the group's node has the resources for the whole gang.
func (s *search) holdsAll(group int32) bool {
	free := s.c.nodes[s.c.groups[group].node].free
	for _, sh := range s.g.Shapes {
		if free.holds(sh.Need, sh.Members) < sh.Members {
			return false
		}
		free = free.minus(sh.Need, sh.Members)
	}
	return true
}

// split deals GPUs of one group out to the members, shape by shape.
func (s *search) split(group int32, gpus []int) []Member {
	var ms []Member
	for i, sh := range s.g.Shapes {
		for range sh.Members {
			ms = append(ms, Member{Shape: i, Group: int(group), GPUs: gpus[:sh.GPUs:sh.GPUs]})
			gpus = gpus[sh.GPUs:]
		}
	}
	return ms
}

// measure works out tier, PM score and penalty of chosen members.
func (s *search) measure(members []Member) Placement {
	p := Placement{Members: members, Tier: s.tier(members)}
	for _, m := range members {
		for _, u := range m.GPUs {
			p.PMScore = max(p.PMScore, rawScore(&s.c.gpus[u].GPU, s.k))
		}
	}
	p.Penalty = s.c.locality[p.Tier][s.k]
	return p
}

func rawScore(u *GPU, class int) PMScore {
	if u.Scores[class] == 0 {
		return 1
	}
	return u.Scores[class]
}

// tier is the smallest tier in use that holds all members.
func (s *search) tier(members []Member) Tier {
	c := s.c
	first := c.gpus[members[0].GPUs[0]]
	fg := c.groups[first.group]
	same := [TierCluster + 1]bool{TierIsland: first.Island != 0, TierNUMA: first.NUMA != 0, TierNode: true, TierRack: true, TierDatacenter: true, TierCluster: true}
	for _, m := range members {
		g := c.groups[m.Group]
		same[TierNode] = same[TierNode] && g.node == fg.node
		same[TierRack] = same[TierRack] && c.nodes[g.node].rack == c.nodes[fg.node].rack
		same[TierDatacenter] = same[TierDatacenter] && c.nodes[g.node].dc == c.nodes[fg.node].dc
		for _, u := range m.GPUs {
			same[TierIsland] = same[TierIsland] && c.gpus[u].Island == first.Island
			same[TierNUMA] = same[TierNUMA] && c.gpus[u].NUMA == first.NUMA
		}
	}
	same[TierIsland] = same[TierIsland] && same[TierNode]
	same[TierNUMA] = same[TierNUMA] && same[TierNode]
	for t := TierIsland; t < TierCluster; t++ {
		if same[t] && c.locality.uses(t) {
			return t
		}
	}
	return TierCluster
}
