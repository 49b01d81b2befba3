// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
)

// place is the artifact's step 6, policy by policy.
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

// placeByClass places the longest prefix of the order that fits anew, most
// sensitive classes first.
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

// placeAnew releases everything and places in the given order up to the first
// job that does not fit. Policies without randomness do the same again for the
// same jobs, so a round in which nothing changed is not computed twice.
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

// full says whether the first of the remaining jobs does not fit.
func (r *rounds) full(rest []*roundJob) bool {
	return len(rest) == 0 || rest[0].GPUs > r.Cluster.FreeGPUs()
}

// stop takes a job's GPUs away and remembers them.
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
	r.Cluster.Take(j.gang, pl)
	j.placement, j.launched = pl, true
	r.launches = append(r.launches, j)
	return true
}

// placeSticky leaves running jobs alone; a job that does not fit suspends
// later ones from the end of the order until it does. If it never does, they
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
