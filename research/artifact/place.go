// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package artifact

import (
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
)

// place is the artifact's step 6: placement by the policy.
func (r *rounds) place() {
	switch r.Policy {
	case "pal", "pm-first":
		r.placeByClass()
	case "packed-nonsticky", "random-nonsticky":
		r.placeAnew(r.active)
	default:
		r.placeSticky()
	}
}

// placeByClass places all jobs again: the longest prefix of the order whose GPUs fit on the
// cluster, most sensitive classes first.
func (r *rounds) placeByClass() {
	n, demand := 0, 0
	for _, j := range r.active {
		if demand+j.GPUs > r.Cluster.NumGPUs() {
			break
		}
		demand += j.GPUs
		n++
	}
	order := slices.Clone(r.active[:n])
	slices.SortStableFunc(order, func(a, b *roundJob) int { return a.Class.Index() - b.Class.Index() })
	r.placeAnew(append(order, r.active[n:]...))
}

// placeAnew releases all jobs, and places them in the given order up to the first job that does not
// fit. Without randomness, the same jobs get the same GPUs again, so placeAnew skips a round in
// which nothing changed.
func (r *rounds) placeAnew(order []*roundJob) {
	if r.pol.Sample == nil && len(r.lastRun) > 0 && len(r.lastRun) <= len(order) &&
		slices.Equal(r.lastRun, order[:len(r.lastRun)]) && r.full(order[len(r.lastRun):]) {
		return
	}
	for _, j := range r.active {
		if j.running {
			r.stop(j)
		}
	}
	r.lastRun = r.lastRun[:0]
	for _, j := range order {
		if !r.start(j) {
			break
		}
		r.lastRun = append(r.lastRun, j)
	}
}

// full reports whether the first of the remaining jobs does not fit, or no job remains.
func (r *rounds) full(rest []*roundJob) bool {
	return len(rest) == 0 || rest[0].GPUs > r.Cluster.FreeGPUs()
}

// stop releases a job's GPUs, and remembers them in had.
func (r *rounds) stop(j *roundJob) {
	j.had = j.placement.GPUs()
	slices.Sort(j.had)
	r.Cluster.Release(j.gang, j.placement)
	j.running, j.suspended = false, true
	r.suspends = append(r.suspends, j)
}

func (r *rounds) start(j *roundJob) bool {
	pl, ok := pal.Place(r.Cluster, j.gang, r.pol)
	if !ok {
		return false
	}
	if r.pol.Name == pal.PAL && j.GPUs > 1 && pl.Tier <= pal.TierNode {
		pl = r.asNumpy(j.gang, pl)
	}
	r.Cluster.Take(j.gang, pl)
	j.placement, j.launched = pl, true
	r.launches = append(r.launches, j)
	return true
}

// placeSticky keeps running jobs on their GPUs. For a job that does not fit, placeSticky suspends
// later jobs, from the end of the order, until the job fits. If the job never fits, the later jobs
// stay suspended (packing_sticky.py:70-100).
func (r *rounds) placeSticky() {
	for i, j := range r.active {
		if j.running || r.start(j) {
			continue
		}
		if !r.evictFor(i) {
			return
		}
	}
}

func (r *rounds) evictFor(i int) bool {
	for k := len(r.active) - 1; k > i; k-- {
		victim := r.active[k]
		if !victim.running {
			continue
		}
		r.stop(victim)
		if r.start(r.active[i]) {
			return true
		}
	}
	return false
}

// asNumpy moves a gang that PAL places on one node to the node that the artifact takes. If several
// nodes tie for the most free GPUs up to the gang's bin, pal.Place takes the first node, and the
// artifact the first in numpy's order.
func (r *rounds) asNumpy(g pal.Gang, pl pal.Placement) pal.Placement {
	c, k := r.Cluster, g.Class.Index()
	bin := pal.PMScore(0)
	for _, u := range pl.GPUs() {
		bin = max(bin, c.GPU(u).Binned[k])
	}
	var groups, counts []int
	for i := range c.Groups() {
		first, size := c.GroupGPUs(i)
		n := 0
		for u := first; u < first+size; u++ {
			if c.Available(u) && c.GPU(u).Binned[k] <= bin {
				n++
			}
		}
		if n > 0 {
			groups, counts = append(groups, i), append(counts, n)
		}
	}
	if len(counts) <= stableUpTo {
		return pl
	}
	at := groups[numpyOrder(counts)[0]]
	if at == c.GroupOf(pl.GPUs()[0]) {
		return pl
	}
	g.MemberSets = slices.Clone(g.MemberSets)
	for i := range g.MemberSets {
		g.MemberSets[i].Eligible = make([]bool, c.Groups())
		g.MemberSets[i].Eligible[at] = true
	}
	there, ok := pal.Place(c, g, r.pol)
	if !ok {
		panic("artifact: a node with enough GPUs does not hold the gang")
	}
	return there
}
