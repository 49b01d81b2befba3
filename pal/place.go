// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"math/bits"
	"slices"
)

// Place chooses GPUs for the gang among those available. ok is false where the
// gang does not fit now; [Explain] says why. The cluster is left as it is.
//
// A gang never mixes GPU models unless its member sets ask for different ones: where
// several models would do, each is tried and the lowest cost wins, on ties the
// model that comes first in the cluster.
//
// What the member sets prefer comes before any cost: the first preference that holds
// the whole gang wins, and within it their spreads.
//
// Cost: a few passes over the device groups, plus the GPUs of those chosen, for
// each preference tried.
func Place(c *Cluster, g Gang, p Policy) (pl Placement, ok bool) {
	f, ok := Find(c, g, p)
	return f.Placement, ok
}

// Found is a placement with how it was found, so that [ExplainFound] need not
// search again.
type Found struct {
	Placement
	c         *Cluster
	stateHash uint64 // of the cluster
	gang      Gang
	policy    Policy
	prefer    int // which preference held it; -1: none was needed
	model     int
	walked    int // entries of the LV matrix
}

// Find is [Place] that remembers.
func Find(c *Cluster, g Gang, p Policy) (f Found, ok bool) {
	free := c.free
	if p.OutlierThreshold > 0 {
		c.countOutliers(p.OutlierThreshold)
		free -= c.outliers.free[g.class()]
	}
	if n := g.GPUs(); n == 0 || n > free {
		return Found{}, false
	}
	for i := range g.preferences() {
		if f, ok = findWithin(c, g.preferring(i), p); ok {
			f.gang, f.prefer = g, i
			return f, true
		}
	}
	return findWithin(c, g, p)
}

// findWithin knows no preferences.
func findWithin(c *Cluster, g Gang, p Policy) (f Found, ok bool) {
	for _, m := range modelsFor(c, g) {
		s := newSearch(c, g, p, m)
		members := s.spread()
		if members == nil {
			members = s.place()
		}
		if members == nil {
			continue
		}
		if pl := s.measure(members); !ok || pl.Cost() < f.Cost() {
			f, ok = Found{pl, c, c.stateHash, g, p, -1, m, s.walked}, true
		}
	}
	return f, ok
}

// answers says whether the placement is what [Find] would return now. GPUs that
// were avoided in finding it must not be there.
func (f *Found) answers(c *Cluster, g Gang, p Policy) bool {
	if f.c != c || f.stateHash != c.stateHash || f.policy.Name != p.Name || f.policy.Tight != p.Tight || !f.gang.same(g) {
		return false
	}
	if f.policy.Sample != nil || p.Sample != nil {
		return false
	}
	return f.policy.OutlierThreshold == p.OutlierThreshold || p.OutlierThreshold == 0 && c.outliers.above == f.policy.OutlierThreshold && c.outliers.free[g.class()] == 0
}

// preferences is how many preferences there are to try.
func (g Gang) preferences() int {
	n := 0
	for i := range g.MemberSets {
		n = max(n, len(g.MemberSets[i].Prefer))
	}
	return n
}

// preferring is the gang with the i-th preference of each member set, the last where
// a member set has fewer, as all that is eligible.
func (g Gang) preferring(i int) Gang {
	g.MemberSets = slices.Clone(g.MemberSets)
	for k := range g.MemberSets {
		if s := &g.MemberSets[k]; len(s.Prefer) > 0 {
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

// modelsFor lists the models to try: those that every member set accepts, or
// anyModel where no single one does.
func modelsFor(c *Cluster, g Gang) []int {
	common := c.scratch.models[:0]
	for m := range c.models {
		if len(c.models) == 1 || !slices.ContainsFunc(g.MemberSets, func(sh MemberSet) bool { return !c.accepts(m, sh.Eligible) }) {
			common = append(common, m)
		}
	}
	if len(common) == 0 {
		common = append(common, anyModel)
	}
	c.scratch.models = common
	return common
}

// accepts says whether a group of the model is eligible.
func (c *Cluster) accepts(model int, eligible []bool) bool {
	if eligible == nil {
		return true
	}
	for w, word := range c.models[model].groups {
		for ; word != 0; word &= word - 1 {
			if eligible[64*w+bits.TrailingZeros64(word)] {
				return true
			}
		}
	}
	return false
}
