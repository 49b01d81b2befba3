// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
)

// The baselines are policies for comparison with PAL. A baseline considers only how many GPUs are
// free on each node. [Explain] shows the choice of Packed next to PAL's.
type baseline struct{ s *search }

// packed packs gangs as the artifact does, without regard to variability. A node with exactly the
// needed number of free GPUs is preferred, then the fullest node that can hold the gang. If no
// single node can hold the gang, packed fills nodes one by one, the emptiest first.
func (b baseline) packed() []Member {
	s := b.s
	best, bestFree := int32(-1), math.MaxInt
	groups := s.groups()
	if s.n > s.c.largestGroup {
		groups = nil
	}
	for _, g := range groups {
		if int(s.c.avail[g]) < s.n || bestFree == s.n {
			continue
		}
		free := s.free(g)
		if free >= s.n && free < bestFree && s.eligibleForAll(g) && s.holdsAll(g) {
			best, bestFree = g, free
		}
	}
	if best >= 0 {
		return s.split(best, b.firstFree(best, s.n))
	}
	return s.eachSet(nil, b.fillUp)
}

// fillUp repeatedly fills the device group with the most free GPUs. If several groups have equally
// many free GPUs, the first of them is filled.
func (b baseline) fillUp(set int) []Member {
	s := b.s
	k, left := s.g.MemberSets[set].GPUs, s.g.MemberSets[set].Members
	groups := s.groups()
	all, perLevel := s.simple(groups), zeros(&s.c.scratch.perCount, s.c.largestGroup+1)
	for _, g := range groups {
		perLevel[s.free(g)]++
	}
	loads := s.c.scratch.loads[:0]
	for level := s.c.largestGroup; level >= k && left > 0; level-- {
		if perLevel[level] == 0 {
			continue
		}
		for _, g := range groups {
			if s.free(g) != level || !all && !s.eligible(set, g) {
				continue
			}
			n := min(level/k, left, s.fits[set].holds(&s.c.resources[s.c.nodeOf[g]]))
			if n > 0 {
				loads, left = append(loads, load{group: g, members: int32(n)}), left-n
			}
			if left == 0 {
				break
			}
		}
	}
	s.c.scratch.loads = loads
	if left > 0 {
		return nil
	}
	slices.SortFunc(loads, func(a, b load) int { return int(a.group - b.group) })
	return b.fillFirst(set, loads)
}

// load contains the number of members that a baseline has put on a group, and the number of free
// GPUs that remain in the group.
type load struct {
	group         int32
	free, members int32
}

// spreadOut repeatedly puts one member on the device group with the most free GPUs.
func (b baseline) spreadOut(set int) []Member {
	s := b.s
	k, left := s.g.MemberSets[set].GPUs, s.g.MemberSets[set].Members
	loads := s.c.scratch.loads[:0]
	for _, g := range s.groups() {
		if s.eligible(set, g) {
			loads = append(loads, load{group: g, free: int32(s.free(g))})
		}
	}
	s.c.scratch.loads = loads
	for level := s.c.largestGroup; level >= k && left > 0; level-- {
		for i := range loads {
			p := &loads[i]
			switch {
			case int(p.free) != level || left == 0:
			case int(p.members) == s.fits[set].holds(&s.c.resources[s.c.nodeOf[p.group]]): // the node cannot hold another member
				p.free = 0
			default:
				p.free -= int32(k)
				p.members++
				left--
			}
		}
	}
	if left > 0 {
		return nil
	}
	return b.fillFirst(set, loads)
}

// fillFirst puts the members of each load on the first free GPUs of the load's group.
func (b baseline) fillFirst(set int, loads []load) []Member {
	s := b.s
	k := s.g.MemberSets[set].GPUs
	ms := make([]Member, 0, s.g.MemberSets[set].Members)
	for _, p := range loads {
		if p.members == 0 {
			continue
		}
		gpus := b.firstFree(p.group, int(p.members)*k)
		for ; len(gpus) > 0; gpus = gpus[k:] {
			ms = append(ms, Member{MemberSet: set, Group: int(p.group), GPUs: gpus[:k:k]})
		}
	}
	return ms
}

// firstFree lists the first n GPUs of a group that can be chosen.
func (b baseline) firstFree(group int32, n int) []int {
	s := b.s
	g := s.c.groups[group]
	gpus := make([]int, 0, n)
	for i := int(g.first); i < int(g.first+g.n) && len(gpus) < n; i++ {
		if s.mayChoose(i) {
			gpus = append(gpus, i)
		}
	}
	return gpus
}

// sample draws k distinct numbers from 0 to n-1. The numbers come from the policy's Sample function
// or, if the policy has none, from a generator that is seeded with the gang's ID.
func (b baseline) sample(set, n, k int) []int {
	s := b.s
	if s.p.Sample != nil {
		return s.p.Sample(n, k)
	}
	h := fnv.New64a()
	h.Write([]byte(s.g.ID))
	return rand.New(rand.NewPCG(h.Sum64(), uint64(set))).Perm(n)[:k]
}

// randomSet draws slots from all groups, with equal probability. A slot has the GPUs of one member.
func (b baseline) randomSet(set int) []Member {
	s := b.s
	want := s.g.MemberSets[set]
	var pool []Member
	for _, g := range s.groups() {
		if !s.eligible(set, g) {
			continue
		}
		gpus := b.firstFree(g, int(s.c.groups[g].n))
		capacity := s.c.resources[s.c.groups[g].node].holds(want.Need, len(gpus))
		for i := 0; i < min(capacity, len(gpus)/want.GPUs); i++ {
			pool = append(pool, Member{MemberSet: set, Group: int(g), GPUs: gpus[i*want.GPUs:][:want.GPUs:want.GPUs]})
		}
	}
	if len(pool) < want.Members {
		return nil
	}
	ms := make([]Member, 0, want.Members)
	for _, i := range b.sample(set, len(pool), want.Members) {
		ms = append(ms, pool[i])
	}
	return ms
}
