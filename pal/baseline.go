// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
)

// packed is the artifact's packing, blind to variability: a node with exactly
// the GPUs needed, else the fullest that holds the gang, else the emptiest
// nodes one after the other.
func (s *search) packed() []Member {
	best, bestFree := int32(-1), math.MaxInt
	groups := s.groups()
	if s.n > s.c.most {
		groups = nil
	}
	for _, g := range groups {
		if int(s.c.avail[g]) < s.n || bestFree == s.n {
			continue
		}
		if free := s.free(g); free >= s.n && free < bestFree && s.eligibleForAll(g) && s.holdsAll(g) {
			best, bestFree = g, free
		}
	}
	if best >= 0 {
		return s.split(best, s.firstFree(best, s.n))
	}
	return s.eachSet(s.inOrder(), s.fillUp)
}

// inOrder are the member sets.
func (s *search) inOrder() []int {
	order := make([]int, len(s.g.MemberSets))
	for i := range order {
		order[i] = i
	}
	return order
}

// fillUp repeatedly fills the group with most free GPUs, on ties the first.
func (s *search) fillUp(set int) []Member {
	k, left := s.g.MemberSets[set].GPUs, s.g.MemberSets[set].Members
	groups := s.groups()
	all, perLevel := s.simple(groups), zeros(&s.c.scratch.perCount, s.c.most+1)
	for _, g := range groups {
		perLevel[s.free(g)]++
	}
	piles := s.c.scratch.piles[:0]
	for level := s.c.most; level >= k && left > 0; level-- {
		if perLevel[level] == 0 {
			continue
		}
		for _, g := range groups {
			if s.free(g) != level || !all && !s.eligible(set, g) {
				continue
			}
			n := min(level/k, left, s.fits[set].holds(&s.c.room[s.c.on[g]]))
			if n > 0 {
				piles, left = append(piles, pile{group: g, used: int32(n)}), left-n
			}
			if left == 0 {
				break
			}
		}
	}
	s.c.scratch.piles = piles
	if left > 0 {
		return nil
	}
	slices.SortFunc(piles, func(a, b pile) int { return int(a.group - b.group) })
	return s.fillFirst(set, piles)
}

// pile is what a baseline does with a group: the GPUs that it may still take,
// and the members that it has put there.
type pile struct {
	group      int32
	free, used int32
}

// spreadOut repeatedly puts one member on the group with most free GPUs, on ties
// the first. It goes level by level: what is left of a pile lies on a lower one.
func (s *search) spreadOut(set int) []Member {
	k, left := s.g.MemberSets[set].GPUs, s.g.MemberSets[set].Members
	piles := s.c.scratch.piles[:0]
	for _, g := range s.groups() {
		if s.eligible(set, g) {
			piles = append(piles, pile{group: g, free: int32(s.free(g))})
		}
	}
	s.c.scratch.piles = piles
	for level := s.c.most; level >= k && left > 0; level-- {
		for i := range piles {
			p := &piles[i]
			switch {
			case int(p.free) != level || left == 0:
			case int(p.used) == s.fits[set].holds(&s.c.room[s.c.on[p.group]]): // of the node
				p.free = 0
			default:
				p.free, p.used, left = p.free-int32(k), p.used+1, left-1
			}
		}
	}
	if left > 0 {
		return nil
	}
	return s.fillFirst(set, piles)
}

// fillFirst puts as many members as were used on each group's first free GPUs.
func (s *search) fillFirst(set int, piles []pile) []Member {
	k := s.g.MemberSets[set].GPUs
	ms := make([]Member, 0, s.g.MemberSets[set].Members)
	for _, p := range piles {
		if p.used == 0 {
			continue
		}
		gpus := s.firstFree(p.group, int(p.used)*k)
		for ; len(gpus) > 0; gpus = gpus[k:] {
			ms = append(ms, Member{MemberSet: set, Group: int(p.group), GPUs: gpus[:k:k]})
		}
	}
	return ms
}

// firstFree lists the first n GPUs of a group that may be chosen.
func (s *search) firstFree(group int32, n int) []int {
	g := s.c.groups[group]
	gpus := make([]int, 0, n)
	for i := int(g.first); i < int(g.first+g.n) && len(gpus) < n; i++ {
		if s.may(i) {
			gpus = append(gpus, i)
		}
	}
	return gpus
}

// random draws slots of k GPUs in index order, any group; with one-GPU members
// it draws GPUs, as the artifact does.
func (s *search) random() []Member {
	return s.eachSet(s.inOrder(), s.randomSet)
}

// sample draws as the policy says, else by the gang's name: the same gang draws
// the same on the same cluster, as Nomad shuffles nodes by evaluation id.
func (s *search) sample(set, n, k int) []int {
	if s.p.Sample != nil {
		return s.p.Sample(n, k)
	}
	h := fnv.New64a()
	h.Write([]byte(s.g.ID))
	return rand.New(rand.NewPCG(h.Sum64(), uint64(set))).Perm(n)[:k]
}

func (s *search) randomSet(set int) []Member {
	sh := s.g.MemberSets[set]
	var pool []Member
	for _, g := range s.groups() {
		if !s.eligible(set, g) {
			continue
		}
		gpus := s.firstFree(g, int(s.c.groups[g].n))
		room := s.c.room[s.c.groups[g].node].holds(sh.Need, len(gpus))
		for i := 0; i < min(room, len(gpus)/sh.GPUs); i++ {
			pool = append(pool, Member{MemberSet: set, Group: int(g), GPUs: gpus[i*sh.GPUs:][:sh.GPUs:sh.GPUs]})
		}
	}
	if len(pool) < sh.Members {
		return nil
	}
	ms := make([]Member, 0, sh.Members)
	for _, i := range s.sample(set, len(pool), sh.Members) {
		ms = append(ms, pool[i])
	}
	return ms
}
