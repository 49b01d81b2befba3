// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
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

// pile is the GPUs of a group that a greedy baseline may still take, and the
// members it has put there.
type pile struct {
	group      int32
	free, used int32
}

// greedyShape takes the piles level by level: what is left of one lies on a
// lower level.
func (s *search) greedyShape(shape int, rule fillRule) []Member {
	k, left := s.g.Shapes[shape].GPUs, s.g.Shapes[shape].Members
	piles, most := s.piles(shape)
	for level := most; left > 0; level-- {
		if level < k {
			return nil
		}
		for i := range piles {
			if int(piles[i].free) != level || left == 0 {
				continue
			}
			p := &piles[i]
			room := s.fits[shape].holds(&s.c.room[s.c.groups[p.group].node]) - int(p.used)
			n := min(level/k, left, room)
			if rule == spreadOut {
				n = min(n, 1)
			}
			if n <= 0 {
				p.free = 0
				continue
			}
			p.free, p.used, left = p.free-int32(n*k), p.used+int32(n), left-n
		}
	}
	return s.fillFirst(shape, piles)
}

// piles are those of the groups that may serve the shape, in order; most is how
// many GPUs the highest has.
func (s *search) piles(shape int) (piles []pile, most int) {
	piles = s.c.scratch.piles[:0]
	for _, g := range s.groups() {
		if s.eligible(shape, g) {
			free := s.free(g)
			piles, most = append(piles, pile{group: g, free: int32(free)}), max(most, free)
		}
	}
	s.c.scratch.piles = piles
	return piles, most
}

// fillFirst puts as many members as were used on each group's first free GPUs.
func (s *search) fillFirst(shape int, piles []pile) []Member {
	k := s.g.Shapes[shape].GPUs
	ms := make([]Member, 0, s.g.Shapes[shape].Members)
	for _, p := range piles {
		if p.used == 0 {
			continue
		}
		gpus := s.firstFree(p.group, int(p.used)*k)
		for ; len(gpus) > 0; gpus = gpus[k:] {
			ms = append(ms, Member{Shape: shape, Group: int(p.group), GPUs: gpus[:k:k]})
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
	for _, g := range s.groups() {
		if !s.eligible(shape, g) {
			continue
		}
		gpus := s.firstFree(g, int(s.c.groups[g].n))
		room := s.c.room[s.c.groups[g].node].holds(sh.Need, len(gpus))
		for i := 0; i < min(room, len(gpus)/sh.GPUs); i++ {
			pool = append(pool, Member{Shape: shape, Group: int(g), GPUs: gpus[i*sh.GPUs:][:sh.GPUs:sh.GPUs]})
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
