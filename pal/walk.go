// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import "slices"

// lvEntry is one entry of the LV matrix: GPUs with bin value up to values[v],
// all within one domain of the tier.
type lvEntry struct {
	v       int
	tier    Tier
	product float64
}

// matrix is the LV matrix in walking order: by product, on equal products the
// closer tier, then the lower bin (PAL alg. 2, line 3; the artifact sorts
// stably with "within" built first).
func (s *search) matrix() []lvEntry {
	var es []lvEntry
	for v, value := range s.values {
		for _, t := range s.tiers() {
			es = append(es, lvEntry{v, t, float64(value) * s.c.locality.penalty(t, s.k)})
		}
	}
	slices.SortStableFunc(es, func(a, b lvEntry) int {
		switch {
		case a.product < b.product:
			return -1
		case a.product > b.product:
			return 1
		case a.tier != b.tier:
			return int(a.tier) - int(b.tier)
		}
		return a.v - b.v
	})
	return es
}

// tiers are those the gang may use: the ones with a penalty, up to its limit,
// and the limit itself.
func (s *search) tiers() []Tier {
	if s.g.MaxTier == 0 {
		return s.c.locality.Tiers()
	}
	var ts []Tier
	for _, t := range s.c.locality.Tiers() {
		if t < s.g.MaxTier {
			ts = append(ts, t)
		}
	}
	return append(ts, s.g.MaxTier)
}

// walk is PAL (alg. 2): take the first entry of the LV matrix that can hold the
// gang. A gang of one GPU has no locality to gain and goes to PM-First, as in
// the artifact.
//
// For every tier the lowest bin that works in some domain is found once, when
// the walk first meets the tier; an entry works if its bin is at least that.
// Within a domain closer than a rack the GPUs with the lowest index up to the
// bin are taken; in wider domains PM-First chooses among them.
func (s *search) walk() []Member {
	if s.n == 1 {
		return s.pmFirst(s.openGroups(), len(s.values)-1)
	}
	var found [TierCluster + 1]*domain
	for _, e := range s.matrix() {
		if found[e.tier] == nil {
			d := s.bestDomain(e.tier)
			found[e.tier] = &d
		}
		d := found[e.tier]
		taken := d.v <= e.v
		s.walked = append(s.walked, Entry{Bin: s.values[e.v], Tier: e.tier, Product: e.product, Taken: taken})
		if taken {
			return s.within(*d)
		}
	}
	return nil
}

// domain is the place of one tier that a gang would take: the one that works
// with the lowest bin, among those the one with most GPUs up to that bin, then
// the first.
type domain struct {
	v      int // lowest bin that works; len(values) if none does
	free   int // GPUs up to that bin
	group  int32
	sub    uint16  // island or NUMA node, in tiers closer than the node
	tier   Tier    // of the domain
	groups []int32 // in tiers wider than the node
}

func (s *search) bestDomain(t Tier) domain {
	switch t {
	case TierIsland, TierNUMA:
		return s.bestSubdomain(t)
	case TierNode:
		if s.model != anyModel || len(s.g.Shapes) == 1 {
			return s.bestNode()
		}
		return s.bestOf(t, s.groupsByNode())
	case TierRack:
		return s.bestOf(t, s.c.racks.groups)
	case TierDatacenter:
		return s.bestOf(t, s.c.dcs.groups)
	}
	return s.bestOf(t, [][]int32{s.openGroups()})
}

// better says whether a domain beats the best so far.
func (d domain) better(best domain) bool {
	return d.v < best.v || d.v == best.v && d.free > best.free
}

func (s *search) none(t Tier) domain { return domain{v: len(s.values), tier: t} }

// bestNode looks for one device group that holds the whole gang.
func (s *search) bestNode() domain {
	best := s.none(TierNode)
	for _, g := range s.openGroups() {
		v, free := s.lowestBin(g)
		d := domain{v: v, free: free, group: g, tier: TierNode}
		if d.better(best) && s.eligibleForAll(g) && s.holdsAll(g) {
			best = d
		}
	}
	if s.p.NodeOrder != nil && best.v < len(s.values) {
		best.group = s.reorder(best)
	}
	return best
}

// lowestBin is the lowest bin up to which the group has GPUs for the whole gang.
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

// reorder lets the policy's NodeOrder choose among the groups.
func (s *search) reorder(best domain) int32 {
	var groups []int32
	var counts []int
	for gi := range s.c.groups {
		if n := s.upTo(int32(gi), best.v); n > 0 {
			groups, counts = append(groups, int32(gi)), append(counts, n)
		}
	}
	for _, i := range s.p.NodeOrder(counts) {
		if counts[i] >= s.n && s.eligibleForAll(groups[i]) && s.holdsAll(groups[i]) {
			return groups[i]
		}
	}
	return best.group
}

// bestSubdomain looks for one island or NUMA node that holds the whole gang.
func (s *search) bestSubdomain(t Tier) domain {
	best := s.none(t)
	for gi := range s.c.groups {
		g := int32(gi)
		if !s.c.groups[gi].hasSubdomain {
			continue
		}
		if v, _ := s.lowestBin(g); v > best.v || v == len(s.values) || !s.eligibleForAll(g) || !s.holdsAll(g) {
			continue
		}
		for _, sub := range s.subdomains(g, t) {
			if d := s.subdomain(g, t, sub); d.better(best) {
				best = d
			}
		}
	}
	return best
}

func (s *search) subdomains(group int32, t Tier) []uint16 {
	var subs []uint16
	g := s.c.groups[group]
	for i := g.first; i < g.first+g.n; i++ {
		if sub := subdomainOf(&s.c.gpus[i].GPU, t); sub != 0 && !slices.Contains(subs, sub) {
			subs = append(subs, sub)
		}
	}
	slices.Sort(subs)
	return subs
}

func subdomainOf(u *GPU, t Tier) uint16 {
	if t == TierIsland {
		return u.Island
	}
	return u.NUMA
}

func (s *search) subdomain(group int32, t Tier, sub uint16) domain {
	perBin := make([]int, len(s.values))
	g := s.c.groups[group]
	for i := g.first; i < g.first+g.n; i++ {
		if u := &s.c.gpus[i]; u.available && subdomainOf(&u.GPU, t) == sub {
			perBin[s.toValue[g.model][s.c.ranks[s.k][i]]]++
		}
	}
	free := 0
	for v, n := range perBin {
		if free += n; free >= s.n {
			return domain{v: v, free: free, group: group, sub: sub, tier: t}
		}
	}
	return s.none(t)
}

// bestOf looks for the rack or datacenter that holds the whole gang.
func (s *search) bestOf(t Tier, domains [][]int32) domain {
	best := s.none(t)
	for _, groups := range domains {
		v, free := s.lowestBinOf(groups, best.v)
		if d := (domain{v: v, free: free, groups: groups, tier: t}); d.better(best) {
			best = d
		}
	}
	return best
}

// lowestBinOf is the lowest bin, at most limit, up to which the groups together
// hold the gang. One shape is counted exactly; several are tried out.
func (s *search) lowestBinOf(groups []int32, limit int) (v, free int) {
	slots, gpus := zeros(&s.c.scratch.room, len(s.values)), zeros(&s.c.scratch.inAll, len(s.values))
	for _, g := range groups {
		s.addCapacity(g, slots, gpus)
	}
	for v := range s.values {
		if v > limit {
			break
		}
		switch {
		case len(s.g.Shapes) == 1 && slots[v] >= s.g.Shapes[0].Members:
			return v, gpus[v]
		case len(s.g.Shapes) > 1 && gpus[v] >= s.n && s.pmFirst(groups, v) != nil:
			return v, gpus[v]
		}
	}
	return len(s.values), 0
}

// zeros is *buf cut or grown to n zeros.
func zeros(buf *[]int, n int) []int {
	*buf = slices.Grow((*buf)[:0], n)[:n]
	clear(*buf)
	return *buf
}

// addCapacity adds, per bin value, how many members of the first shape the
// group can hold and how many GPUs it has for any shape.
func (s *search) addCapacity(group int32, slots, gpus []int) {
	ok := s.eligible(0, group)
	for i := 1; i < len(s.g.Shapes) && !ok; i++ {
		ok = s.eligible(i, group)
	}
	if !ok {
		return
	}
	g := s.c.groups[group]
	to, counts := s.toValue[g.model], s.counts(group)
	if len(to) == 0 {
		return
	}
	sh := &s.g.Shapes[0]
	limit := s.c.nodes[g.node].free.holds(sh.Need, sh.Members)
	b, n := 0, 0
	for v := to[0]; v < len(s.values); v++ {
		if b < len(counts) && to[b] == v {
			n = int(counts[b])
			b++
		}
		gpus[v] += n
		slots[v] += min(limit, n/sh.GPUs)
	}
}

func (s *search) groupsByNode() [][]int32 {
	ds := make([][]int32, len(s.c.nodes))
	for i := range s.c.nodes {
		n := &s.c.nodes[i]
		ds[i] = s.everywhere()[n.firstGroup : n.firstGroup+n.groups]
	}
	return ds
}

// within chooses the GPUs in a domain.
func (s *search) within(d domain) []Member {
	if d.groups != nil {
		return s.pmFirst(d.groups, d.v)
	}
	g := s.c.groups[d.group]
	gpus := make([]int, 0, s.n)
	for i := int(g.first); i < int(g.first+g.n) && len(gpus) < s.n; i++ {
		u := &s.c.gpus[i]
		if u.available && s.toValue[g.model][s.c.ranks[s.k][i]] <= d.v && (d.sub == 0 || subdomainOf(&u.GPU, d.tier) == d.sub) {
			gpus = append(gpus, i)
		}
	}
	return s.split(d.group, gpus)
}
