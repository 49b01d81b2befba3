// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"fmt"
	"math/bits"
	"slices"
)

// search is one attempt to place one gang on GPUs of one model (or of any model, if its member sets
// request different models).
//
// A search works in the cluster's scratch memory. Loops have a shortcut for gangs with one member
// set that fit one model: see simple.
type search struct {
	*scale
	c      *Cluster
	g      Gang
	p      Policy
	k      int     // index of the gang's class
	n      int     // GPUs that the gang requests
	model  int     // model to search, or anyModel
	avoid  bool    // the cluster has outliers, and the search leaves them out
	offset []int32 // of each group's counts in Cluster.upTo
	fits   []fit   // by member set; prepare sets it
	listed []int32 // see groups
	trail  trail
}

// scale contains the bin values and their matrix, which all searches for one class and model share.
// For any model, the bins of all models are merged by value, so that bins of different models can
// be compared.
type scale struct {
	values  []PMScore // bin values, ascending
	toValue [][]int   // model → bin → index into values; nil if the model is not searched
	entries []lvEntry // the matrix, for gangs without a limit on their tier
}

// scratch is memory that all searches on a cluster reuse. Each search overwrites scratch, so the
// results of a search must not be in scratch.
type scratch struct {
	models              []int
	fits                []fit
	listed              []int32
	slots               []binSlots
	perBin, perCount    []int
	slotsUpTo, gpusUpTo []int
	loads               []load
	byBin               []int
	subs                []uint16
}

// newSearch returns a search for GPUs of one model. Call [search.prepare] before placing a gang.
func newSearch(c *Cluster, g Gang, p Policy, model int) *search {
	s := &search{c: c, g: g, p: p, k: g.class(), n: g.GPUs(), model: model, trail: trail{roomier: nowhere()}}
	s.scale = c.scaleOf(s.k, model)
	s.offset = c.bins.offset[s.k]
	if p.OutlierThreshold > 0 && c.outliers.gpus[s.k] > 0 {
		s.avoid, s.offset = true, c.bins.inliers[s.k]
	}
	return s
}

// class returns the index of the gang's class. [Gang.Validate] checks gangs from outside, so an
// unknown class here is a bug.
func (g *Gang) class() int {
	k := g.Class.Index()
	if k < 0 {
		panic(fmt.Sprintf("pal: gang %q: application class %q is unknown", g.ID, g.Class))
	}
	return k
}

// scaleOf returns the scale for a class and a model.
func (c *Cluster) scaleOf(class, model int) *scale {
	kept := &c.scales[class][model+1]
	if *kept != nil {
		return *kept
	}
	s := &scale{toValue: make([][]int, len(c.models))}
	for m := range c.models {
		if model == anyModel || model == m {
			s.values = append(s.values, c.models[m].values[class]...)
		}
	}
	slices.Sort(s.values)
	s.values = slices.Compact(s.values)
	for m := range c.models {
		if model != anyModel && model != m {
			continue
		}
		for _, v := range c.models[m].values[class] {
			i, _ := slices.BinarySearch(s.values, v)
			s.toValue[m] = append(s.toValue[m], i)
		}
	}
	s.entries = s.matrix(c.locality, class, c.locality.Tiers())
	*kept = s
	return s
}

// place returns the gang's members with their GPUs, or nil if the gang does not fit.
func (s *search) place() []Member {
	if len(s.values) == 0 {
		return nil
	}
	s.prepare()
	if s.p.Name == PAL || s.g.MaxTier > 0 { // the other policies do not enforce a limit
		w := walk{s: s}
		return w.place()
	}
	switch s.p.Name {
	case PMFirst:
		return s.pmFirst(s.groups(), len(s.values)-1)
	case Packed:
		return baseline{s}.packed()
	case Spread:
		return s.eachSet(nil, baseline{s}.spreadOut)
	case Random:
		return s.eachSet(nil, baseline{s}.randomSet)
	}
	panic(fmt.Sprintf("pal: placement policy %q", s.p.Name))
}

// fit contains the needs of a member set, in the form that searches use.
type fit struct {
	need        Resources
	members     int
	perNode     int       // maximum number of members on a node, whatever its resources
	perNodeNeed Resources // what perNode members need
	membersFor  []uint16  // by number of GPUs: how many members these GPUs suffice for; avoids a division
}

// prepare computes the tables that the loops over groups need, once for each member set. The tables
// of an earlier search are overwritten.
func (s *search) prepare() {
	s.fits = s.c.scratch.fits[:0]
	for i := range s.g.MemberSets {
		set := &s.g.MemberSets[i]
		var membersFor []uint16
		if i < cap(s.fits) {
			membersFor = s.fits[:i+1][i].membersFor
		}
		f := fit{need: set.Need, members: set.Members, perNode: set.Members}
		if set.Need.PerNode > 0 {
			f.perNode = min(f.perNode, set.Need.PerNode)
		}
		f.perNodeNeed = Resources{CPU: times(set.Need.CPU, f.perNode), MemoryMB: times(set.Need.MemoryMB, f.perNode), DiskMB: times(set.Need.DiskMB, f.perNode)}
		f.membersFor = slices.Grow(membersFor[:0], s.c.largestGroup+1)[:s.c.largestGroup+1]
		for n := range f.membersFor {
			f.membersFor[n] = 0
			if set.GPUs > 0 {
				f.membersFor[n] = uint16(n / set.GPUs)
			}
		}
		s.fits = append(s.fits, f)
	}
	s.c.scratch.fits = s.fits
}

// holds returns how many members fit on a node with these resources.
func (f *fit) holds(free *Resources) int {
	if free.CPU >= f.perNodeNeed.CPU && free.MemoryMB >= f.perNodeNeed.MemoryMB && free.DiskMB >= f.perNodeNeed.DiskMB {
		return f.perNode
	}
	return free.holds(f.need, f.members)
}

// eligible reports whether the device group can serve the member set.
func (s *search) eligible(set int, group int32) bool {
	if s.model != anyModel && int(s.c.groups[group].model) != s.model {
		return false
	}
	e := s.g.MemberSets[set].Eligible
	return e == nil || e[group]
}

// eligibleForAll reports whether the group can serve every member set.
func (s *search) eligibleForAll(group int32) bool {
	for i := range s.g.MemberSets {
		if !s.eligible(i, group) {
			return false
		}
	}
	return true
}

// counts returns one number for each bin of the group's model. The number says how many of the
// group's GPUs in this bin and all lower bins can be chosen. The slice belongs to the cluster;
// callers must not change it.
func (s *search) counts(group int32) []uint16 {
	bins := len(s.values)
	if s.model == anyModel {
		bins = len(s.toValue[s.c.groups[group].model])
	}
	return s.c.bins.upTo[s.k][s.offset[group]:][:bins]
}

// free returns the number of GPUs of the group that can be chosen.
func (s *search) free(group int32) int {
	if s.avoid && s.offset[group] != s.c.bins.offset[s.k][group] {
		counts := s.counts(group)
		return int(counts[len(counts)-1])
	}
	return int(s.c.avail[group])
}

// mayChoose reports whether GPU i can be chosen.
func (s *search) mayChoose(i int) bool {
	u := &s.c.gpus[i]
	return u.available && !(s.avoid && u.outlier>>s.k&1 != 0)
}

// groups lists the device groups, in order, that can serve at least one member set and have an
// available GPU. The list is in the cluster's scratch memory, so it is valid only until the next
// search.
func (s *search) groups() []int32 {
	if s.listed != nil {
		return s.listed
	}
	list := slices.Grow(s.c.scratch.listed[:0], min(len(s.c.groups), s.c.free))
	only := []bool(nil) // groups that a single member set is limited to; nil: no limit
	if len(s.g.MemberSets) == 1 {
		only = s.g.MemberSets[0].Eligible
	}
	for w, word := range s.c.open {
		if s.model != anyModel {
			word &= s.c.models[s.model].groups[w]
		}
		for ; word != 0; word &= word - 1 {
			g := 64*w + bits.TrailingZeros64(word)
			if only != nil && !only[g] || len(s.g.MemberSets) > 1 && !s.g.MayUse(g) {
				continue
			}
			list = append(list, int32(g))
		}
	}
	s.listed, s.c.scratch.listed = list, list
	return list
}

// simple reports whether the shortcut for simple searches applies: the search has one member set
// and one model, and the parameter `groups` is what the method groups returned.
func (s *search) simple(groups []int32) bool {
	return len(s.g.MemberSets) == 1 && s.model != anyModel && len(groups) > 0 && len(s.listed) > 0 && &groups[0] == &s.listed[0]
}

// holdsAll reports whether the group's node has the resources for the whole gang.
func (s *search) holdsAll(group int32) bool {
	free := s.c.resources[s.c.nodeOf[group]]
	for i := range s.g.MemberSets {
		set := &s.g.MemberSets[i]
		if free.holds(set.Need, set.Members) < set.Members {
			return false
		}
		free = free.Minus(set.Need, set.Members)
	}
	return true
}

// split divides GPUs of one group among the members, member set by member set. Each slice is
// capped, so that an append cannot overwrite the next member's GPUs.
func (s *search) split(group int32, gpus []int) []Member {
	n := 0
	for i := range s.g.MemberSets {
		n += s.g.MemberSets[i].Members
	}
	ms := make([]Member, 0, n)
	for i, set := range s.g.MemberSets {
		for range set.Members {
			ms = append(ms, Member{MemberSet: i, Group: int(group), GPUs: gpus[:set.GPUs:set.GPUs]})
			gpus = gpus[set.GPUs:]
		}
	}
	return ms
}
