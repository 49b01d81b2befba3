// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
)

// packed is the artifact's packing, blind to variability: a node with exactly
// the GPUs needed, else the fullest that holds the gang, else the emptiest
// nodes one after the other.
func (s *search) packed() []Member {
	best, bestFree := int32(-1), 0
	for gi := range s.c.groups {
		g := int32(gi)
		free := s.upTo(g, len(s.values)-1)
		if free < s.n || best >= 0 && free >= bestFree || !s.eligibleForAll(g) || !s.holdsAll(g) {
			continue
		}
		best, bestFree = g, free
	}
	if best >= 0 {
		return s.split(best, s.firstFree(best, s.n))
	}
	return s.greedy(fillUp)
}

// fill says how many members a greedy baseline puts on the group it picks.
type fillRule int

const (
	fillUp    fillRule = iota // as many as it holds
	spreadOut                 // one
)

// greedy repeatedly takes the group with most free GPUs, on ties the first.
func (s *search) greedy(rule fillRule) []Member {
	order := make([]int, len(s.g.Shapes))
	for i := range order {
		order[i] = i
	}
	return s.eachShape(order, func(shape int) []Member { return s.greedyShape(shape, rule) })
}

func (s *search) greedyShape(shape int, rule fillRule) []Member {
	sh := s.g.Shapes[shape]
	free, used := make([]int, len(s.c.groups)), make([]int, len(s.c.groups))
	for gi := range s.c.groups {
		if s.eligible(shape, int32(gi)) {
			free[gi] = s.upTo(int32(gi), len(s.values)-1)
		}
	}
	for placed := 0; placed < sh.Members; {
		gi := slices.Index(free, slices.Max(free))
		room := s.c.nodes[s.c.groups[gi].node].free.holds(sh.Need, sh.Members) - used[gi]
		n := min(free[gi]/sh.GPUs, sh.Members-placed, room)
		if rule == spreadOut {
			n = min(n, 1)
		}
		switch {
		case free[gi] < sh.GPUs:
			return nil
		case n <= 0:
			free[gi] = 0
		default:
			free[gi] -= n * sh.GPUs
			used[gi] += n
			placed += n
		}
	}
	return s.fillFirst(shape, used)
}

// fillFirst puts used[group] members on each group's first free GPUs.
func (s *search) fillFirst(shape int, used []int) []Member {
	k := s.g.Shapes[shape].GPUs
	var ms []Member
	for gi, n := range used {
		gpus := s.firstFree(int32(gi), n*k)
		for ; len(gpus) > 0; gpus = gpus[k:] {
			ms = append(ms, Member{Shape: shape, Group: gi, GPUs: gpus[:k:k]})
		}
	}
	return ms
}

// firstFree lists the first n available GPUs of a group.
func (s *search) firstFree(group int32, n int) []int {
	g := s.c.groups[group]
	gpus := make([]int, 0, n)
	for i := int(g.first); i < int(g.first+g.n) && len(gpus) < n; i++ {
		if s.c.gpus[i].available {
			gpus = append(gpus, i)
		}
	}
	return gpus
}

// random draws slots of k GPUs in index order, any group; with one-GPU members
// it draws GPUs, as the artifact does.
func (s *search) random() []Member {
	order := make([]int, len(s.g.Shapes))
	for i := range order {
		order[i] = i
	}
	return s.eachShape(order, s.randomShape)
}

// sample draws as the policy says, else by the gang's name: the same gang draws
// the same on the same cluster, as Nomad shuffles nodes by evaluation id.
func (s *search) sample(shape, n, k int) []int {
	if s.p.Sample != nil {
		return s.p.Sample(n, k)
	}
	h := fnv.New64a()
	h.Write([]byte(s.g.ID))
	return rand.New(rand.NewPCG(h.Sum64(), uint64(shape))).Perm(n)[:k]
}

func (s *search) randomShape(shape int) []Member {
	sh := s.g.Shapes[shape]
	var pool []Member
	for gi := range s.c.groups {
		g := int32(gi)
		if !s.eligible(shape, g) {
			continue
		}
		gpus := s.firstFree(g, int(s.c.groups[gi].n))
		room := s.c.nodes[s.c.groups[gi].node].free.holds(sh.Need, len(gpus))
		for i := 0; i < min(room, len(gpus)/sh.GPUs); i++ {
			pool = append(pool, Member{Shape: shape, Group: gi, GPUs: gpus[i*sh.GPUs:][:sh.GPUs:sh.GPUs]})
		}
	}
	if len(pool) < sh.Members {
		return nil
	}
	ms := make([]Member, 0, sh.Members)
	for _, i := range s.sample(shape, len(pool), sh.Members) {
		ms = append(ms, pool[i])
	}
	return ms
}
