// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"iter"
	"slices"
)

// pmFirst is PM-First (PAL alg. 1): it takes the GPUs with the lowest bins, wherever they are. The
// search uses only the given groups, and only bins up to values[limit]. It returns nil if the gang
// does not fit. Member sets with the most GPUs per member go first.
//
// With one-GPU members, pmFirst chooses the same GPUs as the artifact. The artifact sorts GPUs by
// three keys: the bin, the difference between the demand and the number of GPUs of that bin on the
// node, and the index. The second key prefers nodes on which about as many GPUs are in this bin as
// the gang needs.
func (s *search) pmFirst(groups []int32, limit int) []Member {
	return s.fromSlots(groups, limit, s.lowestSlots)
}

// fromSlots places the member sets; sets with the most GPUs per member come first. The function
// `choose` selects slots for one set from the slots up to the bin limit. If the set has more
// members than there are slots, choose returns nil.
func (s *search) fromSlots(groups []int32, limit int, choose func(all []binSlots, members int) []binSlots) []Member {
	most := func(a, b int) int { return s.g.MemberSets[b].GPUs - s.g.MemberSets[a].GPUs }
	return s.eachSet(most, func(set int) []Member {
		kept := choose(s.slotsUpTo(set, groups, limit), s.g.MemberSets[set].Members)
		if kept == nil {
			return nil
		}
		return s.fill(set, kept)
	})
}

// eachSet places the member sets in the order given by `compare`. If `compare` is nil, the sets are
// placed in the job's order. The members are returned in the gang's order. Each set takes its GPUs
// in the cluster, so that no later set gets the same GPUs. eachSet releases all GPUs at the end.
func (s *search) eachSet(compare func(a, b int) int, place func(set int) []Member) []Member {
	if len(s.g.MemberSets) == 1 {
		return place(0)
	}
	order := make([]int, len(s.g.MemberSets))
	for i := range order {
		order[i] = i
	}
	if compare != nil {
		slices.SortStableFunc(order, compare)
	}
	var all []Member
	defer func() { s.c.Release(s.g, Placement{Members: all}) }()
	for _, set := range order {
		if s.g.MemberSets[set].Members == 0 { // all of the set's members have finished, or its count is 0
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

// binSlots is the number of slots that a member set has in one bin of a device group. The bin of a
// slot is the worst bin of its GPUs. A slot is a place for one member.
type binSlots struct {
	group int32
	v     int32  // worst bin
	n     uint16 // members
	inBin uint16 // GPUs of the worst bin on the group
}

// slotsUpTo lists the slots of a member set up to a bin, grouped by device group and by bin. The
// list is in the cluster's scratch memory.
func (s *search) slotsUpTo(set int, groups []int32, limit int) []binSlots {
	all := s.c.scratch.slots[:0]
	if s.simple(groups) {
		all = s.simpleSlots(all, limit)
		groups = nil
	}
	for _, g := range groups {
		if s.c.avail[g] > 0 && s.eligible(set, g) {
			all = s.appendSlots(all, set, g, limit)
		}
	}
	s.c.scratch.slots = all
	return all
}

// lowestSlots keeps the slots with the lowest bins, as many as the members need. Among the slots of
// the last bin that is needed, it prefers the slots with the lowest score. The score of a slot is
// the difference between the demand of the gang and the number of GPUs of that bin in the group.
//
// lowestSlots does not sort the slots. The method counts the members by bin, which gives the last
// bin, and the members of the last bin by score, which gives the last score.
func (s *search) lowestSlots(all []binSlots, need int) []binSlots {
	perBin := zeros(&s.c.scratch.perBin, len(s.values))
	for i := range all {
		perBin[all[i].v] += int(all[i].n)
	}
	last := cutoff(perBin, &need)
	if last < 0 {
		return nil
	}
	perCount := zeros(&s.c.scratch.perCount, s.c.largestGroup+1)
	for i := range all {
		if int(all[i].v) == last {
			perCount[all[i].inBin] += int(all[i].n)
		}
	}
	return s.selectSlots(all, last, s.cutoffScore(perCount, &need), need)
}

// fewestNodes keeps the slots of as few groups as possible. The groups with the most slots keep all
// their slots. The remaining members get slots of the smallest group that has enough slots. Groups
// with the lowest bins are preferred among groups with equally many slots. The returned slice
// reuses the memory of `all`.
func (s *search) fewestNodes(all []binSlots, need int) []binSlots {
	groups := zeros(&s.c.scratch.perCount, s.c.largestGroup+1) // number of groups by their slots
	for of := range byGroup(all) {
		groups[members(of)]++
	}
	level := len(groups) - 1
	whole := 0
	rest := 0 // take all groups with more slots than level, and whole of the groups with exactly level slots
	for ; level > 0; level-- {
		whole = min(groups[level], need/level)
		need -= whole * level
		if need == 0 || whole < groups[level] {
			break
		}
	}
	switch {
	case level == 0:
		return nil
	case need > 0:
		for rest = need; groups[rest] == 0; {
			rest++
		}
	}
	return s.keepGroups(all, level, whole, rest, need)
}

// keepGroups keeps all groups that have more than `level` slots. The parameter `whole` is the
// number of groups with exactly `level` slots to keep; groups with the lowest bins come first. The
// remaining members (`need`) get slots of one group that has `rest` slots.
func (s *search) keepGroups(all []binSlots, level, whole, rest, need int) []binSlots {
	perBin, last := zeros(&s.c.scratch.perBin, len(s.values)), -1
	for of := range byGroup(all) {
		if members(of) == level {
			perBin[worstOf(of, level)]++
		}
	}
	if whole > 0 {
		last = cutoff(perBin, &whole)
	}
	kept := all[:0]
	part := []binSlots(nil)
	at := 0
	for of := range byGroup(all) {
		n := members(of)
		v := worstOf(of, n)
		switch {
		case n > level, n == level && v < last:
			kept = append(kept, of...)
		case n == level && v == last && whole > 0:
			whole--
			kept = append(kept, of...)
		case n == rest && (part == nil || worstOf(of, need) < worstOf(part, need)):
			part, at = append(part[:0], of...), len(kept)
		}
	}
	for i := range part {
		n := min(int(part[i].n), need)
		part[i].n, need = uint16(n), need-n
		if need == 0 {
			part = part[:i+1]
			break
		}
	}
	return slices.Insert(kept, at, part...)
}

// worstOf returns the worst bin among the first n slots of a group.
func worstOf(slots []binSlots, n int) int {
	for _, e := range slots {
		n -= int(e.n)
		if n <= 0 {
			return int(e.v)
		}
	}
	return int(slots[len(slots)-1].v)
}

// byGroup yields the slots group by group.
func byGroup(all []binSlots) iter.Seq[[]binSlots] {
	return func(yield func([]binSlots) bool) {
		for from := 0; from < len(all); {
			to := from
			for to < len(all) && all[to].group == all[from].group {
				to++
			}
			if !yield(all[from:to]) {
				return
			}
			from = to
		}
	}
}

// members returns the number of members that the slots hold together.
func members(slots []binSlots) (n int) {
	for _, e := range slots {
		n += int(e.n)
	}
	return n
}

// selectSlots keeps the slots below the last bin and score, and the first `need` slots with exactly
// this bin and score. The returned slice reuses the memory of `all`.
func (s *search) selectSlots(all []binSlots, last, lastScore, need int) []binSlots {
	kept := all[:0]
	for _, e := range all {
		score := max(int(e.inBin)-s.n, s.n-int(e.inBin))
		switch {
		case int(e.v) < last, int(e.v) == last && score < lastScore:
		case int(e.v) == last && score == lastScore && need > 0:
			e.n = uint16(min(int(e.n), need))
			need -= int(e.n)
		default:
			continue
		}
		kept = append(kept, e)
	}
	return kept
}

// simpleSlots does the work of appendSlots for all groups of a simple search. In a simple search,
// each bin of a group is a value, and each group is eligible.
func (s *search) simpleSlots(all []binSlots, limit int) []binSlots {
	c, f := s.c, &s.fits[0]
	upTo, membersFor := c.bins.upTo[s.k], f.membersFor
	for _, g := range s.listed {
		counts := upTo[s.offset[g]:][:limit+1]
		if membersFor[counts[limit]] == 0 {
			continue
		}
		most := f.holds(&c.resources[c.nodeOf[g]])
		below := 0
		done := 0
		for v, n := range counts {
			up := min(most, int(membersFor[n]))
			if up > done {
				all = append(all, binSlots{g, int32(v), uint16(up - done), n - uint16(below)})
				done = up
			}
			below = int(n)
		}
	}
	return all
}

// appendSlots adds the slots of one group, by bin. With k GPUs per member, slot j has the GPUs j·k
// … j·k+k−1 of the group in (bin, index) order. So the worst bin of a slot is the bin of its last
// GPU. The variable `up` is the number of slots that the GPUs up to a bin fill.
func (s *search) appendSlots(all []binSlots, set int, group int32, limit int) []binSlots {
	f, g := &s.fits[set], &s.c.groups[group]
	to := s.toValue[g.model]
	below := 0
	done := 0
	most := -1
	for b, count := range s.counts(group) {
		if to[b] > limit {
			break
		}
		n := int(count)
		up := int(f.membersFor[n])
		if up > done {
			if most < 0 { // computed only for groups on which a member fits
				most = f.holds(&s.c.resources[s.c.nodeOf[group]])
			}
			up = min(most, up)
			if up > done {
				all = append(all, binSlots{group, int32(to[b]), uint16(up - done), uint16(n - below)})
				done = up
			}
		}
		below = n
	}
	return all
}

// cutoff returns the first index at which the sum of the counts reaches `need`, or -1 if the sum is
// always smaller. The counts before this index are subtracted from `need`.
func cutoff(counts []int, need *int) int {
	for i, n := range counts {
		if n >= *need {
			return i
		}
		*need -= n
	}
	return -1
}

// cutoffScore returns the first score at which the number of slots reaches `need`. perCount[i] is
// the number of slots on groups with i GPUs of the worst bin. A group with i GPUs of the worst bin
// has the score |i − demand|.
func (s *search) cutoffScore(perCount []int, need *int) int {
	most := len(perCount) - 1
	for score := max(0, s.n-most); ; score++ {
		n := 0
		c := s.n - score
		if c >= 0 && c <= most {
			n += perCount[c]
		}
		c = s.n + score
		if score > 0 && c <= most {
			n += perCount[c]
		}
		if n >= *need {
			return score
		}
		*need -= n
	}
}

// fill turns slots into members. Each group gives its first GPUs in (bin, index) order.
func (s *search) fill(set int, slots []binSlots) []Member {
	k, members := s.g.MemberSets[set].GPUs, s.g.MemberSets[set].Members
	all, ms := make([]int, 0, members*k), make([]Member, 0, members)
	for i := 0; i < len(slots); {
		g, n := slots[i].group, 0
		for ; i < len(slots) && slots[i].group == g; i++ {
			n += int(slots[i].n)
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

// byBin lists the GPUs of the group that can be chosen, in (bin, index) order. The list is in the
// cluster's scratch memory.
func (s *search) byBin(group int32) []int {
	g := s.c.groups[group]
	gpus := s.c.scratch.byBin[:0]
	for b := range s.counts(group) {
		for i := int(g.first); i < int(g.first+g.n); i++ {
			if int(s.c.ranks[s.k][i]) == b && s.mayChoose(i) {
				gpus = append(gpus, i)
			}
		}
	}
	s.c.scratch.byBin = gpus
	return gpus
}
