// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"math/bits"
	"slices"
)

// Place chooses available GPUs for the gang. ok is false if the gang does not fit now; [Explain]
// says why. The cluster does not change.
//
// A gang never mixes GPU models unless its member sets request different models. If several models
// suit, Place tries each model, and the lowest cost wins: the model on which the gang is fastest, if
// its speeds are known. Replicas do not wait for each other, so they mix models if this spreads them
// better.
//
// Preferences of the member sets come before any cost: the first preference under which the whole
// gang fits wins. For each preference, spreads come before cost.
func Place(c *Cluster, g Gang, p Policy) (pl Placement, ok bool) {
	f, ok := Find(c, g, p)
	return f.Placement, ok
}

// Found is a placement with the details of its search, which [ExplainFound] uses.
type Found struct {
	Placement
	policy Policy
	prefer int // index of the preference under which the gang fits; -1: none
	model  int // model that was searched, or anyModel
	trail  trail
	each   []Found // what was found, at most one placement per model; nil if no speeds are known
}

// By returns the policy that found the placement. If the policy is unknown, By returns the zero
// Policy.
func (f Found) By() Policy { return f.policy }

// Find does the same as [Place], and also returns the details of the search.
func Find(c *Cluster, g Gang, p Policy) (f Found, ok bool) {
	free := c.free
	if p.OutlierThreshold > 0 {
		c.countOutliers(p.OutlierThreshold)
		free -= c.outliers.free[g.class()]
	}
	n := g.GPUs()
	if n == 0 || n > free {
		return Found{}, false
	}
	for i := range g.preferences() {
		if f, ok = findWithin(c, g.preferring(i), p); ok {
			f.prefer = i
			return f, true
		}
	}
	return findWithin(c, g, p)
}

// findWithin does the same as Find, but ignores preferences. findWithin searches every suitable
// model.
func findWithin(c *Cluster, g Gang, p Policy) (f Found, ok bool) {
	var all []Found // one per model, if speeds are known
	crowded := 0
	defer ask(c, g).apart()()
	for _, m := range modelsFor(c, g) {
		s := newSearch(c, g, p, m)
		members := s.spread()
		if members == nil {
			members = s.placeBeside()
		}
		if members == nil {
			continue
		}
		l := layout{c, &g, members}
		crowd := l.crowd()
		better := !ok || crowd < crowded
		if !better && (crowd > crowded || m == anyModel) {
			continue
		}
		of := Found{l.placement(), p, -1, m, s.trail, nil}
		if better {
			all = all[:0]
		}
		if len(g.Speeds) > 0 {
			all = append(all, of)
		}
		if better || of.Cost() < f.Cost() {
			f = of
			crowded = crowd
			ok = true
		}
	}
	f.each = all
	return f, ok
}

// preferences returns the number of preferences to try.
func (g Gang) preferences() int {
	n := 0
	for i := range g.MemberSets {
		n = max(n, len(g.MemberSets[i].Prefer))
	}
	return n
}

// preferring restricts each member set to its i-th preference. A set with fewer preferences uses
// its last preference.
func (g Gang) preferring(i int) Gang {
	g.MemberSets = slices.Clone(g.MemberSets)
	for k := range g.MemberSets {
		s := &g.MemberSets[k]
		if len(s.Prefer) > 0 {
			s.Eligible = s.Prefer[min(i, len(s.Prefer)-1)]
		}
	}
	return g
}

// anyModel stands for a search over all models at once.
const anyModel = -1

// modelsFor lists the models to try: all models that every member set accepts. For replicas, and if
// no model suits every member set, modelsFor adds anyModel.
func modelsFor(c *Cluster, g Gang) []int {
	common := c.scratch.models[:0]
	for m := range c.models {
		if len(c.models) == 1 || !slices.ContainsFunc(g.MemberSets, func(set MemberSet) bool { return !c.models[m].accepts(set.Eligible) }) {
			common = append(common, m)
		}
	}
	if len(common) == 0 || g.Replicas && len(c.models) > 1 {
		common = append(common, anyModel)
	}
	c.scratch.models = common
	return common
}

// accepts reports whether a group of the model is eligible.
func (m *modelState) accepts(eligible []bool) bool {
	if eligible == nil {
		return true
	}
	for w, word := range m.groups {
		for ; word != 0; word &= word - 1 {
			if eligible[64*w+bits.TrailingZeros64(word)] {
				return true
			}
		}
	}
	return false
}
