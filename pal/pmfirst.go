// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import "slices"

// pmFirst is PM-First (PAL alg. 1) on the available GPUs of the groups whose
// bin value is at most values[v]: member sets with the most GPUs a member first.
// With one-GPU members it is the artifact's: GPUs by (bin, |GPUs of that bin on
// the node − demand|, index). nil where the gang does not fit.
func (s *search) pmFirst(groups []int32, v int) []Member {
	if len(s.g.MemberSets) == 1 {
		return s.pmFirstSet(0, groups, v)
	}
	order := make([]int, len(s.g.MemberSets))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return s.g.MemberSets[b].GPUs - s.g.MemberSets[a].GPUs })
	return s.eachSet(order, func(set int) []Member { return s.pmFirstSet(set, groups, v) })
}

// eachSet places member set after member set, each on what the ones before left, and
// returns the members in the gang's order. The cluster is put back.
func (s *search) eachSet(order []int, place func(set int) []Member) []Member {
	if len(s.g.MemberSets) == 1 {
		return place(0)
	}
	var all []Member
	defer func() { s.c.Release(s.g, Placement{Members: all}) }()
	for _, set := range order {
		if s.g.MemberSets[set].Members == 0 { // all of it has finished, or its count is 0
			continue
		}
		ms := place(set)
		if ms == nil {
			return nil
		}
		s.c.Take(s.g, Placement{Members: ms})
		all = append(all, ms...)
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b Member) int { return a.MemberSet - b.MemberSet })
	return sorted
}

// slots are the members of one member set that one group can hold with the same
// worst bin.
type slots struct {
	group int32
	v     int32  // worst bin
	n     uint16 // members
	worst uint16 // GPUs of the worst bin on the group
}

// pmFirstSet chooses for one member set: the slots with the lowest bin, among the
// last bin needed those with the lowest score, |GPUs of that bin on the group −
// demand of the gang|, then the first. Everything is counted, nothing sorted:
// linear in the groups.
func (s *search) pmFirstSet(set int, groups []int32, worst int) []Member {
	perBin := zeros(&s.c.scratch.perBin, worst+1)
	all := s.c.scratch.slots[:0]
	if s.simple(groups) {
		all = s.simpleSlots(all, worst)
		groups = nil
	}
	for _, g := range groups {
		if s.c.avail[g] > 0 && s.eligible(set, g) {
			all = s.appendSlots(all, set, g, worst)
		}
	}
	s.c.scratch.slots = all
	for i := range all {
		perBin[all[i].v] += int(all[i].n)
	}
	need := s.g.MemberSets[set].Members
	last := cutoff(perBin, &need)
	if last < 0 {
		return nil
	}
	perCount := zeros(&s.c.scratch.perCount, s.c.most+1)
	for i := range all {
		if int(all[i].v) == last {
			perCount[all[i].worst] += int(all[i].n)
		}
	}
	return s.fill(set, s.taken(all, last, s.cutoffScore(perCount, &need), need))
}

// taken keeps the slots below the last bin and score, and of those with both
// the first that hold need members.
func (s *search) taken(all []slots, last, lastScore, need int) []slots {
	taken := all[:0]
	for _, e := range all {
		switch score := abs(int(e.worst) - s.n); {
		case int(e.v) < last, int(e.v) == last && score < lastScore:
		case int(e.v) == last && score == lastScore && need > 0:
			e.n = uint16(min(int(e.n), need))
			need -= int(e.n)
		default:
			continue
		}
		taken = append(taken, e)
	}
	return taken
}

// simpleSlots adds the slots of the groups of a simple search.
func (s *search) simpleSlots(all []slots, worst int) []slots {
	c, f := s.c, &s.fits[0]
	upTo, per := c.upTo[s.k], f.per
	for _, g := range s.listed {
		counts := upTo[s.from[g]:][:worst+1]
		if per[counts[worst]] == 0 {
			continue
		}
		most, below, done := f.holds(&c.room[c.on[g]]), 0, 0
		for v, n := range counts {
			if up := min(most, int(per[n])); up > done {
				all = append(all, slots{g, int32(v), uint16(up - done), n - uint16(below)})
				done = up
			}
			below = int(n)
		}
	}
	return all
}

// appendSlots adds the slots of one group, by bin. Slot j holds the GPUs j·k …
// j·k+k−1 of the group in (bin, index) order.
func (s *search) appendSlots(all []slots, set int, group int32, worst int) []slots {
	f, g := &s.fits[set], &s.c.groups[group]
	to, below, done := s.toValue[g.model], 0, 0
	most := -1
	for b, count := range s.counts(group) {
		if to[b] > worst {
			break
		}
		n := int(count)
		if up := int(f.per[n]); up > done {
			if most < 0 {
				most = f.holds(&s.c.room[s.c.on[group]])
			}
			if up = min(most, up); up > done {
				all = append(all, slots{group, int32(to[b]), uint16(up - done), uint16(n - below)})
				done = up
			}
		}
		below = n
	}
	return all
}

// cutoff is the first index up to which the counts add up to need; need is left
// as what is still needed from that index. -1 if they never do.
func cutoff(counts []int, need *int) int {
	for i, n := range counts {
		if n >= *need {
			return i
		}
		*need -= n
	}
	return -1
}

// cutoffScore is the score up to which the members add up to need, given how
// many have each number of GPUs of the worst bin on their group.
func (s *search) cutoffScore(perCount []int, need *int) int {
	most := len(perCount) - 1
	for score := max(0, s.n-most); ; score++ {
		n := 0
		if c := s.n - score; c >= 0 && c <= most {
			n += perCount[c]
		}
		if c := s.n + score; score > 0 && c <= most {
			n += perCount[c]
		}
		if n >= *need {
			return score
		}
		*need -= n
	}
}

// fill turns slots into members: every group's GPUs in (bin, index) order.
// Slots of one group come in ascending bins, so they are a prefix of them.
func (s *search) fill(set int, taken []slots) []Member {
	k, members := s.g.MemberSets[set].GPUs, s.g.MemberSets[set].Members
	all, ms := make([]int, 0, members*k), make([]Member, 0, members)
	for i := 0; i < len(taken); {
		g, n := taken[i].group, 0
		for ; i < len(taken) && taken[i].group == g; i++ {
			n += int(taken[i].n)
		}
		first := len(all)
		all = append(all, s.byBin(g)[:n*k]...)
		for gpus := all[first:]; len(gpus) > 0; gpus = gpus[k:] {
			member := gpus[:k:k]
			slices.Sort(member)
			ms = append(ms, Member{MemberSet: set, Group: int(g), GPUs: member})
		}
	}
	return ms
}

// byBin lists the group's GPUs that may be chosen in (bin, index) order. The
// list is in memory of the cluster.
func (s *search) byBin(group int32) []int {
	g := s.c.groups[group]
	gpus := s.c.scratch.byBin[:0]
	for b := range s.counts(group) {
		for i := int(g.first); i < int(g.first+g.n); i++ {
			if int(s.c.ranks[s.k][i]) == b && s.may(i) {
				gpus = append(gpus, i)
			}
		}
	}
	s.c.scratch.byBin = gpus
	return gpus
}

func abs(i int) int { return max(i, -i) }
