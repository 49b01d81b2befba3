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

// Overdue gangs are served beside the queue, in order of submission, with a bounded share of the
// GPUs. The package comment explains what that guarantees.

// account meters the GPU time of overdue gangs. The debt may grow without bound while a large gang
// runs because of its turn; that only delays the next turn.
type account struct {
	at    time.Duration // the time of the last update
	gpus  float64       // GPUs of the cluster; a part of a GPU counts for its share
	used  float64       // GPUs held by gangs that run because they were overdue
	idle  float64       // GPUs that stay free for the turn
	share float64       // long-run part of the GPUs for overdue gangs
	debt  float64       // GPU seconds used beyond the share and not paid off yet
}

// update brings the account to now: usage adds to the debt, the share pays it off. It must be
// called before used, idle or gpus change. An unused share is not saved up.
func (a *account) update(now time.Duration) {
	if now > a.at {
		a.debt = max(0, a.debt+(now-a.at).Seconds()*(a.used+a.idle-a.allowance()))
		a.at = now
	}
}

// allowance is how many GPUs the overdue may have in the long run.
func (a *account) allowance() float64 { return a.share * a.gpus }

// grant records that an overdue gang has begun to run on that many GPUs, or (negative) has stopped.
func (a *account) grant(now time.Duration, gpus float64) {
	a.update(now)
	a.used += gpus
}

// due reports whether an overdue gang may have its turn: there is no debt, and less than the share
// is in use. Starts that are decided but not reported count too; otherwise one pass would begin a
// turn for every gang.
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

// turn keeps GPUs for an overdue gang until all of them are free. The kept GPUs do not change
// during a turn, so the gang waits no longer than the gangs on them run. It takes other GPUs only
// if it can start on these at once.
type turn struct {
	by        *entry
	placement pal.Placement
	last      time.Duration // MaxWait after the turn began; no other gang may use the kept GPUs longer
	// until is the time by which another gang must be expected to end in order to use kept GPUs
	// meanwhile. It is the expected end of the last holder that may not be stopped, but at most
	// last.
	until time.Duration
	// begins is the time when the gang is expected to start: by then, all holders of kept GPUs have
	// ended or may be stopped.
	begins time.Duration
}

// foreseeTurn computes until and begins. until is the last expected end of gangs that may not be
// stopped and that hold, or are about to get, kept GPUs.
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

// bySubmission compares by the time of submission.
func (e *entry) bySubmission(o *entry) int {
	return cmp.Or(cmp.Compare(e.job.Submitted, o.job.Submitted), cmp.Compare(e.seq, o.seq))
}

// serve gives overdue gangs their turn: each starts, stops others, or gets GPUs kept for it. One
// turn keeps GPUs at a time, and ends before the next gang's begins: first come, first served.
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

// serveClaims starts gangs whose turn it was and that have claims, if they fit elsewhere. It does
// not use GPUs that are kept for the next turn.
func (p *pass) serveClaims() {
	for _, c := range slices.Clone(p.Queue.claims) {
		if !c.granted || p.full() {
			continue
		}
		free := func() {}
		if p.turn != nil {
			_, free = p.hold(p.turn.placement.GPUs())
		}
		f, ok := p.elsewhere(c, func() (pal.Found, bool) { return p.asManyAsFit(c.by, p.find) })
		if free(); ok {
			c.by.granted = true
			p.start(c.by, f)
		}
	}
}

// longestOverdue returns the overdue gang that was submitted first, among those that may have a
// turn now; nil if there is none. A gang may not if a limit or a window keeps it waiting, if others
// are already being stopped for it, or if not enough GPUs will ever come free for it.
func (p *pass) longestOverdue() *entry {
	var first *entry
	for _, e := range p.overdue.es { // a heap: only its first element is in order
		p.toLeast(e)
		if (first == nil || e.bySubmission(first) < 0) && !p.overQuota(e) && e.claim == nil && p.awaits(e) && p.barring(e) == nil {
			if first = e; e == p.overdue.es[0] {
				break
			}
		}
	}
	return first
}

// serveOne starts the gang, decides who is stopped for it, or keeps GPUs for it. It returns true if
// the gang starts or others are stopped for it: then the next overdue gang may have its turn in
// this pass. A turn outranks levels and quotas: every gang that may be stopped at all may be
// stopped for it.
func (p *pass) serveOne(e *entry) bool {
	e.anyNeighbour = true
	defer func() { e.anyNeighbour = false }()
	if f, ok := p.asManyAsFit(e, p.find); ok {
		p.turn, e.granted = nil, true
		p.start(e, f)
		return true
	}
	if p.takeOver(e) || p.shrinkFor(e, math.MinInt) || p.opt.Preempt && (p.stopEnough(e, p.above(math.MinInt)) || p.stopAndShrink(e, math.MinInt)) {
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

// valid reports whether the turn's gang still waits and its GPUs will come free. Each GPU must be
// free, held by a gang of the Queue, or held for one: on a shared cluster nobody knows when others
// give GPUs back. Also, no new window may cover the GPUs.
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

// hide excludes the turn's free GPUs from searches; show includes them again.
func (p *finder) hide() { p.hidden, _ = p.hold(p.turn.placement.GPUs()) }

func (p *whatIf) show() {
	p.mark(p.hidden, false)
	p.hidden = nil
}

// onKept looks for a placement that may use GPUs kept for the overdue. The gang must be stoppable
// by the time of the turn, or expected to end in time. A gang that has just started cannot be
// stopped. If any gang could start here, new gangs would hold the GPUs forever.
func (p *planner) onKept(e *entry) (pal.Found, bool) {
	if p.turn == nil || len(p.hidden) == 0 {
		return pal.Found{}, false
	}
	back := p.stoppableBy(e, p.turn.until)
	if !back && (e.job.Endless || p.now+e.expect > p.turn.until) {
		p.slack = max(p.slack, p.turn.until-p.now)
		return pal.Found{}, false
	}
	p.show()
	f, ok := p.find(e)
	p.hide()
	if ok && !back && !p.endsBy(e, f, p.turn.until) {
		p.slack = max(p.slack, e.does(p.turn.until-p.now, f))
		return pal.Found{}, false
	}
	return f, ok
}

// delaysTurn reports whether a gang on that placement could delay the turn. Free GPUs of the turn
// are hidden, so this is about GPUs of other gangs that would be stopped for the gang.
func (p *planner) delaysTurn(e *entry, f pal.Found) bool {
	t := p.turn
	return t != nil && e != t.by && !p.stoppable(e) && touches(f.Placement, setOf(t.placement.GPUs())) && !p.endsBy(e, f, t.until)
}

// stoppable reports whether the gang can be stopped for another one.
func (p *finder) stoppable(e *entry) bool { return p.mayStop(e) && !e.granted }

// stoppableBy reports whether a gang that starts now can be stopped at the time at. A gang must run
// for a while first (minRuns).
func (p *finder) stoppableBy(e *entry, at time.Duration) bool {
	return p.stoppable(e) && p.now+minRuns*e.job.RestartCost <= at
}

// cost returns the gang's run time on the placement relative to its run time at cost 1 with all
// members.
func (e *entry) cost(pl pal.Placement) float64 { return pl.Cost() * e.slower }

// longestRun is more than any gang runs: 100 years. Twice that fits into an int64 of nanoseconds,
// three times that does not.
const longestRun = 100 * 365 * 24 * time.Hour

// atMostLongest converts nanoseconds to a time, up to longestRun. Use it for all computed run times
// and waits: a cost may be infinite, and users' estimates may be arbitrarily long.
func atMostLongest(ns float64) time.Duration {
	if ns < float64(longestRun) {
		return time.Duration(ns)
	}
	return longestRun
}

// stretched multiplies a time by a cost, up to longestRun.
func stretched(d time.Duration, cost float64) time.Duration {
	return atMostLongest(float64(d) * cost)
}

// later returns the time d after at. If gangs run one after the other for centuries, this is at
// most the last time that a Duration can hold.
func later(at, d time.Duration) time.Duration {
	if d > math.MaxInt64-at {
		return math.MaxInt64
	}
	return at + d
}

// does returns how much work the gang does on the placement in the time d.
func (e *entry) does(d time.Duration, f pal.Found) time.Duration {
	return atMostLongest(float64(d) / e.cost(f.Placement))
}

// takes returns the time that the gang needs for the work on the placement.
func (e *entry) takes(work time.Duration, f pal.Found) time.Duration {
	return stretched(work, e.cost(f.Placement))
}
