// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
)

// whatIf is the cluster in a hypothetical state. A method that changes the state returns a function
// that undoes the change, or adds this function to the field `undo`. Changes must be undone in
// reverse order.
type whatIf struct {
	c         *pal.Cluster
	exclusive bool // see Options.Exclusive
	undo      []func()
	held      []int // GPUs held until putBack
	// marked lists all GPUs that the what-if has marked as taken, one list for each call of hold.
	// Some of these GPUs can be free again.
	marked [][]int
	// changed is the edited gang for which [Queue.RoomFor] looks for GPUs. The field `own` lists
	// the GPUs that this gang gives up (Change.Own), but only while they are marked as taken. While
	// these GPUs are free, own is nil.
	changed *entry
	own     []int
}

// putBack restores the cluster to its state before the pass.
func (p *whatIf) putBack() {
	undoAll(p.undo)
}

// undoAll calls the functions, the last one first.
func undoAll(back []func()) {
	for _, b := range slices.Backward(back) {
		b()
	}
}

// vacate frees the GPUs of a running gang in the what-if. The function `back` takes these GPUs
// again. Members whose GPUs the cluster does not show as taken are skipped.
func (p *whatIf) vacate(e *entry) (back func()) {
	if p.changed != nil && e.seq == p.changed.seq { // compare seq, because e can be a copy with some of the members (see with)
		on := setOf(e.placement.GPUs())
		return p.unmark(slices.DeleteFunc(slices.Clone(p.own), func(u int) bool { return !on[u] }))
	}
	pl := e.placement
	if !p.exclusive {
		pl.Members = slices.DeleteFunc(slices.Clone(pl.Members), func(m pal.Member) bool {
			return slices.ContainsFunc(m.GPUs, func(u int) bool { return !p.taken(u) })
		})
	}
	return pal.Vacate(p.c, e.job.Gang, pl)
}

// vacateMembers frees, in the what-if, the GPUs of the gang's members from…to-1. The function
// `back` takes these GPUs again.
func (p *whatIf) vacateMembers(v *entry, from, to int) (back func()) {
	return p.vacate(v.with(from, to))
}

// taken reports whether a GPU is in use, by a gang of the Queue or by another job. For a GPU that
// is out of service, taken returns false, even if a job uses the GPU.
func (p *whatIf) taken(u int) bool {
	if p.c.Available(u) {
		return false
	}
	gpu := p.c.GPU(u)
	return !gpu.Unhealthy && !gpu.Quarantined && !gpu.Unavailable
}

// freeNow returns the GPUs that are available.
func (p *whatIf) freeNow() []int {
	free := make([]int, 0, p.c.FreeGPUs())
	for u := range p.c.NumGPUs() {
		if p.c.Available(u) {
			free = append(free, u)
		}
	}
	return free
}

// holdToEnd holds the free GPUs of a placement until putBack, and returns them.
func (p *whatIf) holdToEnd(pl pal.Placement) (held []int) {
	held, free := p.hold(pl.GPUs())
	p.held = append(p.held, held...)
	p.undo = append(p.undo, free)
	return held
}

// hold marks the free GPUs in the list as taken. It returns the marked GPUs, and a function that
// frees them again.
func (p *whatIf) hold(gpus []int) (held []int, free func()) {
	for _, u := range gpus {
		if u < p.c.NumGPUs() && p.c.Available(u) {
			p.c.SetTaken(u, true)
			held = append(held, u)
		}
	}
	if len(held) == 0 {
		return nil, func() {}
	}
	p.marked = append(p.marked, held)
	return held, func() { p.mark(held, false); p.unlist(held) }
}

// unlist removes a list that is not empty from the field `marked`.
func (p *whatIf) unlist(gpus []int) {
	for i, m := range slices.Backward(p.marked) {
		if &m[0] == &gpus[0] {
			p.marked = slices.Delete(p.marked, i, i+1)
			return
		}
	}
}

// mark marks GPUs as taken, or as not taken.
func (p *whatIf) mark(gpus []int, taken bool) {
	for _, u := range gpus {
		p.c.SetTaken(u, taken)
	}
}

// unmark frees the GPUs in the list that are marked as taken. The function `back` marks these GPUs
// as taken again.
func (p *whatIf) unmark(gpus []int) (back func()) {
	gpus = slices.DeleteFunc(slices.Clone(gpus), func(u int) bool { return u >= p.c.NumGPUs() || !p.c.Taken(u) })
	p.mark(gpus, false)
	return func() { p.mark(gpus, true) }
}

// setOf returns a list of GPUs as a set.
func setOf(gpus []int) map[int]bool {
	set := make(map[int]bool, len(gpus))
	for _, u := range gpus {
		set[u] = true
	}
	return set
}

// touches reports whether a member of the placement has a GPU of the set.
func touches(pl pal.Placement, set map[int]bool) bool { return firstOn(pl, set) >= 0 }

// firstOn returns the index of the first member that has a GPU of the set. If there is none, it
// returns -1.
func firstOn(pl pal.Placement, set map[int]bool) int {
	return slices.IndexFunc(pl.Members, func(m pal.Member) bool {
		return slices.ContainsFunc(m.GPUs, func(u int) bool { return set[u] })
	})
}
