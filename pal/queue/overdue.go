// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"math"
	"slices"
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
	used  float64       // GPUs of running gangs that started in their turn, and idle GPUs that are reserved for the overdue gang, since the last update
	share float64       // see Options.OverdueShare
	debt  float64       // GPU seconds used beyond the share and not paid off yet
}

// update computes the debt at the time now. The GPU time of overdue gangs increases the debt, and
// their share of the cluster's GPU time reduces it. The debt is never negative.
func (a *account) update(now time.Duration, gpus float64) {
	if now > a.at {
		a.debt = max(0, a.debt+(now-a.at).Seconds()*(a.used-a.allowance()))
		a.at = now
	}
	a.gpus = gpus
}

// allowance returns the number of GPUs that overdue gangs can use in the long run.
func (a *account) allowance() float64 { return a.share * a.gpus }

// meter records how many GPUs are used for turns from now on: those of gangs that started in their turn
// or will start, and idle GPUs that are kept for the turn.
func (p *pass) meter(kept []int) {
	p.account.used = p.inTurn() + p.c.Amount(kept...)
}

// inTurn returns the number of GPUs of gangs that started in their turn, or will start.
func (q *Queue) inTurn() (gpus float64) {
	for _, e := range q.all {
		switch {
		case e.wait.granted:
			gpus += e.amount(e.gpus)
		case e.promised != nil && e.promised.inTurn:
			gpus += e.amount(e.least())
		}
	}
	return gpus
}

// due reports whether a new turn can begin: there is no debt, and overdue gangs use less than the
// share.
func (q *Queue) due() bool {
	return q.account.debt <= 0 && q.inTurn() < q.account.allowance()
}

// foreseeTurn computes when the overdue gang is expected to start: when the gangs have ended that
// must not be stopped and that hold its GPUs or are about to get them. The start is at most at the
// time `last`.
func (p *pass) foreseeTurn() {
	r, on := p.turn, setOf(p.turn.placement.GPUs())
	r.at = p.now
	p.whatIf(func() {
		for _, e := range p.endings(r.head, math.MinInt) {
			if e.touches(on) && !p.stoppable(e.entry) {
				r.at = max(r.at, min(r.last, e.at))
			}
		}
	})
}

// bySubmission compares two gangs by the time of submission.
func (e *entry) bySubmission(o *entry) int {
	return cmp.Or(cmp.Compare(e.job.Submitted, o.job.Submitted), cmp.Compare(e.seq, o.seq))
}

// serve gives overdue gangs their turns, first come, first served. In its turn, a gang starts, or
// other gangs are stopped for it. Otherwise it becomes the head, and its reservation lasts until it
// starts. Only one gang has such a reservation at a time, and its turn ends before the next one
// begins.
func (p *pass) serve() {
	p.account.update(p.now, p.c.AllAmount())
	if p.turn != nil && !p.valid(p.turn) {
		p.turn = nil
	}
	p.keepPromises()
	if p.turn != nil && p.overQuota(p.turn.head) {
		p.turn = nil
	}
	if p.turn != nil && !p.serveOne(p.turn.head) {
		return
	}
	for !p.full() && p.due() {
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
	overdue := slices.DeleteFunc(slices.Clone(p.line), func(e *entry) bool { return !e.wait.overdue || e.promised != nil || p.overQuota(e) })
	slices.SortFunc(overdue, (*entry).bySubmission)
	for _, e := range overdue {
		p.resize(e, e.job.Least)
		if p.awaits(e) && p.barring(e) == nil {
			return e
		}
	}
	return nil
}

// serveOne gives one gang its turn: it starts the gang, stops others for the gang, or reserves GPUs
// for it. The result is true if the gang starts, or if other gangs are stopped for it. If so, the
// next overdue gang can have its turn in this pass. Every preemptible gang can be stopped for a
// turn, whatever its level and its tenant's quota.
func (p *pass) serveOne(e *entry) bool {
	e.anyNeighbour = true
	defer func() { e.anyNeighbour = false }()
	if f, ok := p.asManyAsFit(e, p.find); ok {
		p.turn, e.wait.granted = nil, true
		p.start(e, f)
		return true
	}
	if p.stopFor(e, math.MinInt) {
		p.turn, e.promised.inTurn = nil, true
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
	if t.head.state != waiting || p.entries[t.head.job.ID] != t.head || len(p.inWay(t.head, t.placement)) > 0 {
		return false
	}
	busy := map[int]bool{}
	for _, u := range t.placement.GPUs() {
		if p.c.Available(u) {
			continue
		}
		if !p.busy(u) {
			return false // unhealthy
		}
		busy[u] = true
	}
	for _, e := range p.all {
		pls := []pal.Placement{e.target}
		if e.state != waiting {
			pls = append(pls, e.placement)
		}
		if e.promised != nil {
			pls = append(pls, e.promised.placement)
		}
		for _, pl := range pls {
			for _, u := range pl.GPUs() {
				delete(busy, u)
			}
		}
	}
	return len(busy) == 0
}

// turnGPUs returns the GPUs that are reserved for the overdue gang whose turn it is.
func turnGPUs(q *Queue) []int {
	if q.turn == nil {
		return nil
	}
	return q.turn.placement.GPUs()
}

// stoppable reports whether the gang can be stopped for another one. A gang that started in its
// turn cannot be stopped for others.
func (fs *foresight) stoppable(e *entry) bool { return fs.mayStop(e) && !e.wait.granted }

// stoppableBy reports whether a gang that starts now can be stopped by the given time. Before it is
// stopped, the gang must run for minRuns × its restart cost.
func (p *finder) stoppableBy(e *entry, at time.Duration) bool {
	return p.stoppable(e) && p.now+minRuns*e.job.RestartCost <= at
}
