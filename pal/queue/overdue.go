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
	used  float64       // GPUs of running gangs that started in their turn
	idle  float64       // free GPUs that are kept for the turn
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

// turn keeps GPUs for an overdue gang until all of these GPUs are free. The kept GPUs do not change
// during a turn, so the gang waits no longer than the gangs on these GPUs run. The gang uses other
// GPUs only if it can start on them at once.
type turn struct {
	by        *entry
	placement pal.Placement
	last      time.Duration // MaxWait after the beginning of the turn; bounds until
	// Other gangs can start on kept GPUs if they are expected to end by the time `until`. Some
	// gangs that hold kept GPUs must not be stopped. The time `until` is the latest expected end of
	// these gangs, but at most `last`.
	until time.Duration
	// begins is the time when the gang is expected to start, because all gangs on the kept GPUs
	// have then ended or can be stopped.
	begins time.Duration
}

// foreseeTurn computes `until` and `begins` of the turn. The computation considers the gangs that
// hold kept GPUs now, and the gangs that are about to get kept GPUs.
func (p *planner) foreseeTurn() {
	t, on := p.turn, setOf(p.turn.placement.GPUs())
	ends, back := p.endings(&reservation{head: t.by, stops: math.MinInt})
	undoAll(back)
	t.until, t.begins = p.now, p.now
	for _, e := range slices.Backward(ends) {
		if !e.touches(on) {
			continue
		}
		if t.begins = max(t.begins, e.at); !p.stoppable(e.entry) {
			t.until = min(t.last, e.at)
			break
		}
	}
}

// bySubmission compares two gangs by the time of submission.
func (e *entry) bySubmission(o *entry) int {
	return cmp.Or(cmp.Compare(e.job.Submitted, o.job.Submitted), cmp.Compare(e.seq, o.seq))
}

// serve gives overdue gangs their turns, first come, first served. In its turn, a gang either
// starts, or other gangs are stopped for it, or GPUs are kept for it. GPUs are kept for only one
// turn at a time, and this turn ends before the turn of the next gang begins.
func (p *pass) serve() {
	p.account.update(p.now)
	p.account.gpus = p.c.AllAmount()
	if p.turn != nil && !p.valid(p.turn) {
		p.turn = nil
	}
	p.serveClaims()
	if p.turn != nil && p.overQuota(p.turn.by) {
		p.turn = nil
	}
	if p.turn != nil && !p.serveOne(p.turn.by) {
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

// serveOne gives one gang its turn: it starts the gang, stops others for the gang, or keeps GPUs
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
	if p.shrinkFor(e, math.MinInt) || p.opt.Preempt && (p.stopEnough(e, p.above(math.MinInt)) || p.stopAndShrink(e, math.MinInt)) {
		p.turn, p.Queue.claims[len(p.Queue.claims)-1].granted = nil, true
		return true
	}
	if p.turn == nil {
		r := p.reserveFor(e, math.MinInt)
		if !r.known {
			return false
		}
		p.turn = &turn{by: e, placement: r.placement, last: p.now + p.opt.MaxWait}
	}
	p.foreseeTurn()
	p.hide()
	p.undo = append(p.undo, p.show)
	return false
}

// valid reports whether the turn's gang still waits and the kept GPUs will come free. Each kept GPU
// must be free, held by a gang of the Queue, or held for such a gang. The result is also false if
// the gang could run into a window on the kept GPUs.
func (p *pass) valid(t *turn) bool {
	if t.by.state != waiting || p.entries[t.by.job.ID] != t.by || p.crosses(t.by, t.placement) {
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

// hide excludes from searches the free GPUs that are kept for the turn. The method `show` includes
// them again.
func (p *finder) hide() { p.hidden, p.unhide = p.hold(p.turn.placement.GPUs()) }

func (p *whatIf) show() {
	if p.unhide != nil {
		p.unhide()
	}
	p.hidden, p.unhide = nil, nil
}

// onKept returns a placement that can contain GPUs kept for the turn. At the time `until` of the
// turn, the gang must be expected to have ended, or it must be possible to stop it.
func (p *planner) onKept(e *entry) (pal.Found, bool) {
	if p.turn == nil || len(p.hidden) == 0 {
		return pal.Found{}, false
	}
	left, back := p.turn.until-p.now, p.stoppableBy(e, p.turn.until)
	if !back {
		if e.job.Endless {
			return pal.Found{}, false
		}
		if least := p.leastCost(e) * e.slower; stretched(e.expect, least) > left { // too long even on the best GPUs
			p.slack = max(p.slack, atMostLongest(float64(left)/least))
			return pal.Found{}, false
		}
	}
	p.show()
	f, ok := p.find(e)
	p.hide()
	if ok && !back && !p.endsBy(e, f, p.turn.until) {
		p.slack = max(p.slack, e.does(left, f))
		return pal.Found{}, false
	}
	return f, ok
}

// delaysTurn reports whether a gang on this placement could delay the turn.
func (p *planner) delaysTurn(e *entry, f pal.Found) bool {
	t := p.turn
	return t != nil && e != t.by && !p.stoppable(e) && touches(f.Placement, setOf(t.placement.GPUs())) && !p.endsBy(e, f, t.until)
}

// stoppable reports whether the gang can be stopped for another one. A gang that started in its
// turn cannot be stopped for others.
func (p *finder) stoppable(e *entry) bool { return p.mayStop(e) && !e.granted }

// stoppableBy reports whether a gang that starts now can be stopped by the given time. Before it is
// stopped, the gang must run for minRuns × its restart cost.
func (p *finder) stoppableBy(e *entry, at time.Duration) bool {
	return p.stoppable(e) && p.now+minRuns*e.job.RestartCost <= at
}
