// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"cmp"
	"slices"
)

// PAL in short: every pair of a bin and a locality tier predicts a slowdown, which is bin value ×
// penalty. Among the pairs with enough GPUs, the gang gets the pair with the smallest product. So a
// slower GPU nearby can beat a faster GPU far away, and vice versa.
//
// A domain is one place of a tier, for example one rack, node or NVLink island.

// lvEntry is one entry of the L×V matrix: GPUs with bin value up to values[v],
// all within one domain of the tier.
type lvEntry struct {
	v       int
	tier    Tier
	product float64
}

// matrix returns the L×V matrix sorted by product. On equal products, the closer tier comes first,
// then the lower bin (PAL alg. 2, line 3).
//
// The matrix of a large cluster has thousands of entries, so a scale caches the matrix of gangs
// without a locality limit.
func (s *scale) matrix(l Locality, class int, tiers []Tier) []lvEntry {
	es := make([]lvEntry, 0, len(s.values)*len(tiers))
	for v, value := range s.values {
		for _, t := range tiers {
			es = append(es, lvEntry{v, t, float64(value) * l.penalty(t, class)})
		}
	}
	slices.SortStableFunc(es, func(a, b lvEntry) int {
		return cmp.Or(cmp.Compare(a.product, b.product), cmp.Compare(a.tier, b.tier), cmp.Compare(a.v, b.v))
	})
	return es
}

// lvMatrix returns the matrix for the gang. The matrix contains the tiers in use that are closer
// than the gang's locality limit, and the limit itself.
func (s *search) lvMatrix() []lvEntry {
	if s.g.MaxTier == 0 {
		return s.entries
	}
	var ts []Tier
	for _, t := range s.c.locality.Tiers() {
		if t < s.g.MaxTier {
			ts = append(ts, t)
		}
	}
	return s.matrix(s.c.locality, s.k, append(ts, s.g.MaxTier))
}

// walk is the walk of one search through the L×V matrix.
type walk struct {
	s    *search
	best [TierCluster + 1]domain // best domain of each tier that the walk has tried
}

// place is PAL (alg. 2): it takes the first entry of the L×V matrix that can hold the gang. As in
// the artifact, PM-First places a gang of one GPU, because such a gang gains nothing from locality.
// If the policy leaves room for wide gangs, bestNode places a gang of one GPU instead.
//
// The paper counts the free GPUs of the whole cluster for each entry. This code counts only once
// for each tier: it finds the lowest bin up to which one domain of the tier can hold the gang. An
// entry of the tier works if its bin is at least this lowest bin. The result is the same, because
// the GPUs up to a higher bin include the GPUs up to a lower bin.
//
// If the domain is a node or smaller, the walk takes the first GPUs whose bin is at most the
// entry's bin. In wider domains, PM-First chooses the GPUs. The artifact tries all combinations of
// a node's GPUs. The walk tries only one combination: if one with a lower bin existed, the walk
// would have taken it earlier.
func (w *walk) place() []Member {
	s := w.s
	if s.n == 1 && s.p.RoomForWide > 0 && s.g.MaxTier == 0 {
		d := w.bestNode()
		if d.v < len(s.values) {
			return w.within(&d)
		}
	}
	if s.n == 1 {
		return s.pmFirst(s.groups(), len(s.values)-1)
	}
	for i, e := range s.lvMatrix() {
		d := &w.best[e.tier]
		if d.tier == 0 {
			*d = w.bestDomain(e.tier)
		}
		s.trail.walked = i + 1
		if d.v <= e.v {
			return w.within(d)
		}
	}
	return nil
}

// domain is the best place of one tier for a gang: the place that can hold the gang with the lowest
// bin. On ties, the place with the most GPUs up to this bin wins, then the first place. The
// artifact breaks ties in the same way.
type domain struct {
	v      int // lowest bin that works; len(values) if none does
	free   int // GPUs up to bin v
	group  int32
	sub    uint16   // island or NUMA node, in tiers closer than the node
	tier   Tier     // of the domain
	groups []int32  // in tiers wider than the node
	chosen []Member // see [walk.inFewNodes]; nil: any of the GPUs up to the bin
}

// bestDomain finds the best domain of a tier. For a node, it calls bestNode if the gang needs one
// device group, otherwise bestOf.
func (w *walk) bestDomain(t Tier) domain {
	switch t {
	case TierIsland, TierNUMA:
		return w.bestSubdomain(t)
	case TierNode:
		if w.s.g.Sharing == nil && (w.s.model != anyModel || len(w.s.g.MemberSets) == 1) {
			return w.bestNode()
		}
		return w.bestOf(t)
	case TierRack, TierDatacenter:
		return w.inFewNodes(w.bestOf(t))
	}
	d := w.noDomain(t)
	d.groups = w.s.groups()
	if w.s.simple(d.groups) {
		d.v = w.s.lowestBinOfAll()
	} else {
		d.v, _ = w.s.lowestBinOf(d.groups, d.v)
	}
	return w.inFewNodes(d)
}

// better reports whether a domain beats the best so far.
func (d domain) better(best domain) bool {
	return d.v < best.v || d.v == best.v && d.free > best.free
}

// noDomain is worse than any domain that works.
func (w *walk) noDomain(t Tier) domain { return domain{v: len(w.s.values), tier: t} }

// bestNode finds one device group that holds the whole gang. The cheap checks come first.
func (w *walk) bestNode() domain {
	s := w.s
	best := w.noDomain(TierNode)
	if s.n > s.c.largestGroup {
		return best
	}
	for _, g := range s.groups() {
		if int(s.c.avail[g]) < s.n {
			continue
		}
		v, free := s.lowestBin(g)
		d := domain{v: v, free: free, group: g, tier: TierNode}
		if d.better(best) && s.eligibleForAll(g) && s.holdsAll(g) {
			best = d
		}
	}
	if s.p.RoomForWide > 0 && best.v < len(s.values) {
		s.trail.roomier[TierNode] = s.values[best.v]
		best = w.tightest(best)
	}
	return best
}

// lowestBin returns the lowest bin up to which the group has enough GPUs for the whole gang, and
// the number of these GPUs. The bin is an index into values.
func (s *search) lowestBin(group int32) (v, free int) {
	to := s.toValue[s.c.groups[group].model]
	if to == nil {
		return len(s.values), 0
	}
	for b, count := range s.counts(group) {
		if int(count) >= s.n {
			return to[b], int(count)
		}
	}
	return len(s.values), 0
}

// bestSubdomain looks for one island or NUMA node that holds the whole gang. A group is skipped if
// the gang needs a higher bin on the whole group than on the best subdomain so far.
func (w *walk) bestSubdomain(t Tier) domain {
	s := w.s
	best := w.noDomain(t)
	if s.n > s.c.largestGroup {
		return best
	}
	for _, g := range s.groups() {
		if int(s.c.avail[g]) < s.n || !s.c.groups[g].hasSubdomain {
			continue
		}
		v, _ := s.lowestBin(g)
		if v > best.v || v == len(s.values) || !s.eligibleForAll(g) || !s.holdsAll(g) {
			continue
		}
		for _, sub := range s.subdomains(g, t) {
			d := w.subdomain(g, t, sub)
			if d.better(best) {
				best = d
			}
		}
	}
	return best
}

// subdomains lists the numbers of the group's islands or NUMA nodes, ascending. A GPU whose island
// or NUMA node is unknown (0) belongs to no subdomain.
func (s *search) subdomains(group int32, t Tier) []uint16 {
	subs := s.c.scratch.subs[:0]
	g := s.c.groups[group]
	for i := g.first; i < g.first+g.n; i++ {
		sub := subdomainOf(s.c.gpus[i].GPU, t)
		if sub != 0 && !slices.Contains(subs, sub) {
			subs = append(subs, sub)
		}
	}
	slices.Sort(subs)
	s.c.scratch.subs = subs
	return subs
}

func subdomainOf(u *GPU, t Tier) uint16 {
	if t == TierIsland {
		return u.Island
	}
	return u.NUMA
}

// subdomain counts the GPUs of one island or NUMA node by bin, then adds up the counts from the
// lowest bin until the gang fits.
func (w *walk) subdomain(group int32, t Tier, sub uint16) domain {
	s := w.s
	perBin := zeros(&s.c.scratch.perBin, len(s.values))
	g := s.c.groups[group]
	for i := g.first; i < g.first+g.n; i++ {
		if s.mayChoose(int(i)) && subdomainOf(s.c.gpus[i].GPU, t) == sub {
			perBin[s.toValue[g.model][s.c.ranks[s.k][i]]]++
		}
	}
	free := 0
	for v, n := range perBin {
		free += n
		if free >= s.n {
			return domain{v: v, free: free, group: group, sub: sub, tier: t}
		}
	}
	return w.noDomain(t)
}

// bestOf finds the best node, rack or datacenter that holds the whole gang.
func (w *walk) bestOf(t Tier) domain {
	best := w.noDomain(t)
	level := &w.s.c.levels[t]
	for i, groups := range level.groups {
		if int(level.free[i]) < w.s.n {
			continue
		}
		v, free := w.s.lowestBinOf(groups, best.v)
		d := domain{v: v, free: free, groups: groups, tier: t}
		if d.better(best) {
			best = d
		}
	}
	return best
}

// lowestBinOf returns the lowest bin up to which the groups together hold the gang; bins above
// `limit` are not tried. For one member set, the counts are exact. For several member sets, the
// counts are only an estimate, because the sets compete for the same GPUs, CPU and memory. PM-First
// must then check the result.
func (s *search) lowestBinOf(groups []int32, limit int) (v, free int) {
	slots, gpus := zeros(&s.c.scratch.slotsUpTo, len(s.values)), zeros(&s.c.scratch.gpusUpTo, len(s.values))
	several := len(s.g.MemberSets) > 1
	for _, g := range groups {
		if s.c.avail[g] == 0 {
			continue
		}
		s.addCapacity(g, slots, gpus)
	}
	for v := range s.values {
		if v > limit {
			break
		}
		switch {
		case !several && slots[v] >= s.g.MemberSets[0].Members:
			return v, gpus[v]
		case several && gpus[v] >= s.n && s.pmFirst(groups, v) != nil:
			return v, gpus[v]
		}
	}
	return len(s.values), 0
}

// lowestBinOfAll is a fast form of lowestBinOf for simple searches: it covers all groups and has no
// limit.
func (s *search) lowestBinOfAll() int {
	c, f := s.c, &s.fits[0]
	slots := zeros(&c.scratch.slotsUpTo, len(s.values))
	upTo, membersFor := c.bins.upTo[s.k], f.membersFor
	for _, g := range s.listed {
		counts := upTo[s.offset[g]:][:len(slots)]
		most := -1
		for v := len(counts) - 1; v >= 0; v-- {
			n := int(membersFor[counts[v]])
			if n == 0 {
				break
			}
			if most < 0 { // computed once per group, and only if a member fits
				most = f.holds(&c.resources[c.nodeOf[g]])
			}
			slots[v] += min(most, n)
		}
		if slots[0] >= f.members {
			return 0
		}
	}
	v := 0
	for v < len(slots) && slots[v] < f.members {
		v++
	}
	return v
}

// zeros returns *buf resized to n zeros.
func zeros(buf *[]int, n int) []int {
	*buf = slices.Grow((*buf)[:0], n)[:n]
	clear(*buf)
	return *buf
}

// For each bin value, addCapacity adds the capacity of the group to two slices. The slice `slots`
// counts how many members of the first member set the group can hold. The slice `gpus` counts how
// many GPUs the group has for any member set.
func (s *search) addCapacity(group int32, slots, gpus []int) {
	ok := s.eligible(0, group)
	for i := 1; i < len(s.g.MemberSets) && !ok; i++ {
		ok = s.eligible(i, group)
	}
	if !ok {
		return
	}
	g := &s.c.groups[group]
	counts, f := s.counts(group), &s.fits[0]
	most := f.holds(&s.c.resources[s.c.nodeOf[group]])
	if s.model != anyModel { // every bin value of one model is a bin
		gpus, slots = gpus[:len(counts)], slots[:len(counts)]
		for v, n := range counts {
			gpus[v] += int(n)
			slots[v] += min(most, int(f.membersFor[n]))
		}
		return
	}
	// If the search covers several models, a value that is not a bin of this model counts as the
	// next lower bin.
	to := s.toValue[g.model]
	if len(to) == 0 {
		return
	}
	b, n := 0, 0
	for v := to[0]; v < len(s.values); v++ {
		if b < len(counts) && to[b] == v {
			n = int(counts[b])
			b++
		}
		gpus[v] += n
		slots[v] += min(most, int(f.membersFor[n]))
	}
}

// within chooses the gang's GPUs in the domain d, which can hold the gang. As in the artifact,
// within takes the GPUs of a group in the order of their index, not of their bin.
func (w *walk) within(d *domain) []Member {
	s := w.s
	switch {
	case d.chosen != nil:
		return d.chosen
	case d.groups != nil:
		return s.pmFirst(d.groups, d.v)
	}
	g := s.c.groups[d.group]
	gpus := make([]int, 0, s.n)
	for i := int(g.first); i < int(g.first+g.n) && len(gpus) < s.n; i++ {
		u := &s.c.gpus[i]
		if s.mayChoose(i) && s.toValue[g.model][s.c.ranks[s.k][i]] <= d.v && (d.sub == 0 || subdomainOf(u.GPU, d.tier) == d.sub) {
			gpus = append(gpus, i)
		}
	}
	return s.split(d.group, gpus)
}
