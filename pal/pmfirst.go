// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import "slices"

// pmFirst is PM-First (PAL alg. 1) on the available GPUs of the groups whose
// bin value is at most values[v]: shapes with the most GPUs a member first.
// With one-GPU members it is the artifact's: GPUs by (bin, |GPUs of that bin on
// the node − demand|, index). nil where the gang does not fit.
func (s *search) pmFirst(groups []int32, v int) []Member {
	if len(s.g.Shapes) == 1 {
		return s.pmFirstShape(0, groups, v)
	}
	order := make([]int, len(s.g.Shapes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return s.g.Shapes[b].GPUs - s.g.Shapes[a].GPUs })
	return s.eachShape(order, func(shape int) []Member { return s.pmFirstShape(shape, groups, v) })
}

// eachShape places shape after shape, each on what the ones before left, and
// returns the members in the gang's order. The cluster is put back.
func (s *search) eachShape(order []int, place func(shape int) []Member) []Member {
	var all []Member
	defer func() { s.c.Release(s.g, Placement{Members: all}) }()
	for _, shape := range order {
		if s.g.Shapes[shape].Members == 0 { // all of it has finished, or its count is 0
			continue
		}
		ms := place(shape)
		if ms == nil {
			return nil
		}
		s.c.Take(s.g, Placement{Members: ms})
		all = append(all, ms...)
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b Member) int { return a.Shape - b.Shape })
	return sorted
}

// slots are the members of one shape that one group can hold with the same
// worst bin.
type slots struct {
	group int32
	n     int
	score int // |GPUs of the worst bin on the group − demand of the gang|
	v     int // worst bin
}

// pmFirstShape chooses for one shape: the slots with the lowest bin, among the
// last bin needed those with the lowest score, then the first. Everything is
// counted, nothing sorted: linear in the groups.
func (s *search) pmFirstShape(shape int, groups []int32, worst int) []Member {
	perBin := make([]int, worst+1)
	all := s.c.scratch.slots[:0]
	for _, g := range groups {
		if s.eligible(shape, g) {
			all = s.appendSlots(all, shape, g, worst)
		}
	}
	s.c.scratch.slots = all
	for _, e := range all {
		perBin[e.v] += e.n
	}
	need := s.g.Shapes[shape].Members
	last := cutoff(perBin, &need)
	if last < 0 {
		return nil
	}
	perScore := map[int]int{}
	for _, e := range all {
		if e.v == last {
			perScore[e.score] += e.n
		}
	}
	lastScore := cutoffScore(perScore, &need)
	taken := make([]slots, 0, min(len(all), s.g.Shapes[shape].Members))
	for _, e := range all {
		switch {
		case e.v < last, e.v == last && e.score < lastScore:
		case e.v == last && e.score == lastScore && need > 0:
			e.n = min(e.n, need)
			need -= e.n
		default:
			continue
		}
		taken = append(taken, e)
	}
	return s.fill(shape, taken)
}

// appendSlots adds the slots of one group, by bin. Slot j holds the GPUs j·k …
// j·k+k−1 of the group in (bin, index) order.
func (s *search) appendSlots(all []slots, shape int, group int32, worst int) []slots {
	sh := &s.g.Shapes[shape]
	g := s.c.groups[group]
	to, below, done := s.toValue[g.model], 0, 0
	limit := -1
	for b, count := range s.counts(group) {
		if to[b] > worst {
			break
		}
		n := int(count)
		if n/sh.GPUs > done {
			if limit < 0 {
				limit = s.c.nodes[g.node].free.holds(sh.Need, sh.Members)
			}
			if up := min(limit, n/sh.GPUs); up > done {
				all = append(all, slots{group, up - done, abs(n - below - s.n), to[b]})
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

func cutoffScore(perScore map[int]int, need *int) int {
	scores := make([]int, 0, len(perScore))
	for s := range perScore {
		scores = append(scores, s)
	}
	slices.Sort(scores)
	counts := make([]int, len(scores))
	for i, s := range scores {
		counts[i] = perScore[s]
	}
	return scores[cutoff(counts, need)]
}

// fill turns slots into members: every group's GPUs in (bin, index) order.
// Slots of one group come in ascending bins, so they are a prefix of them.
func (s *search) fill(shape int, taken []slots) []Member {
	k := s.g.Shapes[shape].GPUs
	var ms []Member
	for i := 0; i < len(taken); {
		g, n := taken[i].group, 0
		for ; i < len(taken) && taken[i].group == g; i++ {
			n += taken[i].n
		}
		gpus := s.byBin(g)[:n*k]
		for ; len(gpus) > 0; gpus = gpus[k:] {
			member := slices.Clone(gpus[:k])
			slices.Sort(member)
			ms = append(ms, Member{Shape: shape, Group: int(g), GPUs: member})
		}
	}
	return ms
}

// byBin lists the group's available GPUs in (bin, index) order.
func (s *search) byBin(group int32) []int {
	g := s.c.groups[group]
	gpus := make([]int, 0, g.n)
	for b := range s.counts(group) {
		for i := int(g.first); i < int(g.first+g.n); i++ {
			if s.c.gpus[i].available && int(s.c.ranks[s.k][i]) == b {
				gpus = append(gpus, i)
			}
		}
	}
	return gpus
}

func abs(i int) int { return max(i, -i) }
