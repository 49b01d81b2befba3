// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"math"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Overdue gangs are served in addition to the queue, in order of submission, with a bounded share
// of the GPU time. The package comment says what this guarantees.

// account meters the GPU time of overdue gangs. While a large gang that started in its turn runs,
// the debt can grow without bound. A larger debt only delays the next turn.
type account struct {
	at    time.Duration // the time of the last update
	gpus  float64       // GPUs of the cluster; a part of a GPU counts for its share
	used  float64       // GPUs of running gangs that started in their turn
	idle  float64       // free GPUs that are reserved for the overdue gang
	share float64       // see Options.OverdueShare
	debt  float64       // GPU seconds used beyond the share and not paid off yet
}

// update computes the debt at the time now. The GPU time of overdue gangs increases the debt, and
// their share of the cluster's GPU time reduces it. The debt is never negative. Call update before
// used, idle or gpus change.
func (a *account) update(now time.Duration) {
	if now > a.at {
		a.debt = max(0, a.debt+(now-a.at).Seconds()*(a.used+a.idle-a.allowance()))
		a.at = now
	}
}

// allowance returns the number of GPUs that overdue gangs can use in the long run.
func (a *account) allowance() float64 { return a.share * a.gpus }

// grant records that an overdue gang has started in its turn, on the given number of GPUs. A
// negative number means that the gang has stopped.
func (a *account) grant(now time.Duration, gpus float64) {
	a.update(now)
	a.used += gpus
}

// due reports whether a new turn can begin: there is no debt, and overdue gangs use less than the
// share. Starts and claims that are decided but not reported yet count towards the share.
func (a *account) due(pending []*entry, claims []*claim) bool {
	used := a.used
	for _, e := range pending {
		if e.granted && e.state == starting {
			used += e.amount(e.gpus)
		}
	}
	for _, c := range claims {
		if c.granted {
			used += c.by.amount(c.by.least())
		}
	}
	return a.debt <= 0 && used < a.allowance()
}

// foreseeTurn computes when the overdue gang is expected to start: when the gangs on its GPUs, or about
// to get them, that must not be stopped are expected to have ended, but at most at the time `last`.
func (p *planner) foreseeTurn() {
	r, on := p.turn, setOf(p.turn.placement.GPUs())
	ends, back := p.endings(r.head, math.MinInt)
	undoAll(back)
	r.at = p.now
	for _, e := range ends {
		if e.touches(on) && !p.stoppable(e.entry) {
			r.at = max(r.at, min(r.last, e.at))
		}
	}
}

// bySubmission compares two gangs by the time of submission.
func (e *entry) bySubmission(o *entry) int {
	return cmp.Or(cmp.Compare(e.job.Submitted, o.job.Submitted), cmp.Compare(e.seq, o.seq))
}

// serve gives overdue gangs their turns, first come, first served. In its turn, a gang either
// starts, or other gangs are stopped for it, or it becomes the head, with a reservation that lasts
// until it starts. Only one gang has such a reservation at a time, and its turn ends before the next
// one begins.
func (p *pass) serve() {
	p.account.update(p.now)
	p.account.gpus = p.c.AllAmount()
	if p.turn != nil && !p.valid(p.turn) {
		p.turn = nil
	}
	p.serveClaims()
	if p.turn != nil && p.overQuota(p.turn.head) {
		p.turn = nil
	}
	if p.turn != nil && !p.serveOne(p.turn.head) {
		return
	}
	for !p.full() && p.account.due(p.pending, p.Queue.claims) {
		e := p.longestOverdue()
		if e == nil || !p.serveOne(e) {
			return
		}
	}
}

// longestOverdue returns the overdue gang that was submitted first, among the gangs that can have a
// turn now. If there is none, it returns nil. A gang can have no turn in three cases: a limit or a
// window keeps it waiting, other gangs are already being stopped for it, or enough GPUs will never
// come free for it.
func (p *pass) longestOverdue() *entry {
	var first *entry
	for _, e := range p.overdue.es { // es is a heap, so only its first element is in order
		p.toLeast(e)
		if (first == nil || e.bySubmission(first) < 0) && !p.overQuota(e) && e.claim == nil && p.awaits(e) && p.barring(e) == nil {
			if first = e; e == p.overdue.es[0] {
				break
			}
		}
	}
	return first
}

// serveOne gives one gang its turn: it starts the gang, stops others for the gang, or reserves GPUs
// for it. The result is true if the gang starts, or if other gangs are stopped for it. If so, the
// next overdue gang can have its turn in this pass. Every preemptible gang can be stopped for a
// turn, whatever its level and its tenant's quota.
func (p *pass) serveOne(e *entry) bool {
	e.anyNeighbour = true
	defer func() { e.anyNeighbour = false }()
	if f, ok := p.asManyAsFit(e, p.find); ok {
		p.turn, e.granted = nil, true
		p.start(e, f)
		return true
	}
	if p.stopFor(e, math.MinInt) {
		p.turn, p.Queue.claims[len(p.Queue.claims)-1].granted = nil, true
		return true
	}
	if p.turn == nil {
		r := p.reserveFor(e, math.MinInt)
		if !r.known {
			return false
		}
		r.last = p.now + p.opt.MaxWait
		p.turn = r
	}
	p.foreseeTurn()
	p.head, p.reserve = e, p.turn
	return false
}

// valid reports whether the overdue gang still waits and the GPUs of its reservation will come free.
// Each of these GPUs must be free, held by a gang of the Queue, or held for such a gang. The result is
// also false if the gang could run into a window on these GPUs.
func (p *pass) valid(t *reservation) bool {
	if t.head.state != waiting || p.entries[t.head.job.ID] != t.head || p.crosses(t.head, t.placement) {
		return false
	}
	busy := map[int]bool{}
	for _, u := range t.placement.GPUs() {
		if p.c.Available(u) {
			continue
		}
		if !p.taken(u) {
			return false // unhealthy
		}
		busy[u] = true
	}
	if p.opt.Exclusive {
		return true
	}
	ours := func(pl pal.Placement) {
		for _, u := range pl.GPUs() {
			delete(busy, u)
		}
	}
	for _, es := range [][]*entry{p.running, p.pending} {
		for _, e := range es {
			ours(e.placement)
			ours(e.target)
		}
	}
	for _, c := range p.Queue.claims {
		ours(c.placement)
	}
	return len(busy) == 0
}

// stoppable reports whether the gang can be stopped for another one. A gang that started in its
// turn cannot be stopped for others.
func (p *finder) stoppable(e *entry) bool { return p.mayStop(e) && !e.granted }

// stoppableBy reports whether a gang that starts now can be stopped by the given time. Before it is
// stopped, the gang must run for minRuns × its restart cost.
func (p *finder) stoppableBy(e *entry, at time.Duration) bool {
	return p.stoppable(e) && p.now+minRuns*e.job.RestartCost <= at
}
