// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"time"
	"unique"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// pass is one run of Decide. It makes lists of the Queue's gangs at its beginning.
type pass struct {
	finder
	running []*entry // including gangs that are being stopped or moved
	pending []*entry // gangs whose start, move or growth is decided, but not reported
	claims  []*entry // gangs for which others are being stopped
	victims []*entry // the running gangs that can be stopped, worst first; see mayBeStopped
	actions []Action

	head    *entry // the overdue gang whose turn it is or, without one, the first gang that did not fit; nil: none
	reserve *reservation
	// lanes says which gangs of a signature the pass still tries after one of them has failed: those
	// whose expected run time at cost 1 is at most this time.
	lanes    map[unique.Handle[signature]]time.Duration
	delayed  bool             // the last search found GPUs, but the start would delay the head
	verdicts map[*entry]*Wait // why gangs wait; nil if nobody asks
}

// newPass returns a pass that has decided nothing. If a question does not need the cluster, c can be
// nil.
func (q *Queue) newPass(now time.Duration, c *pal.Cluster) *pass {
	p := &pass{finder: finder{Queue: q, now: now, base: c, c: c}, lanes: map[unique.Handle[signature]]time.Duration{}}
	for _, e := range q.all {
		switch {
		case e.state == starting || e.state == moving:
			p.pending = append(p.pending, e)
		case e.promised != nil:
			p.claims = append(p.claims, e)
		}
		if e.state >= running {
			p.running = append(p.running, e)
		}
	}
	return p
}

// Decide returns what to do now. Decide leaves the cluster unchanged. Each decision stays in force
// until the caller reports the outcome.
//
// First, Decide accounts for the time that has passed and for finished runs. Decide updates overdue
// gangs and expected run times. After that, Decide takes four steps. Each step uses
// the GPUs that the earlier steps left:
//
//  1. Decide holds the GPUs of earlier starts and moves.
//  2. Decide gives overdue gangs their turn. This step comes before the queue, because the order of
//     the queue might never reach these gangs.
//  3. Decide walks through the queue, from the first gang to the last.
//  4. Decide moves running gangs to better GPUs. Elastic gangs grow on the GPUs that are left.
//
// If a waiting gang does not fit, the pass skips the other gangs with the same signature, except
// shorter gangs that might fit. Reservations, preemption and moves need further searches.
func (q *Queue) Decide(now time.Duration, c *pal.Cluster) []Action {
	p := q.newPass(now, c)
	p.decide()
	p.checkForecast()
	for _, c := range []*pal.Cluster{p.c, p.ended, p.empty} {
		if c != nil {
			q.spare = append(q.spare, c)
		}
	}
	return p.actions
}

func (p *pass) decide() {
	p.age(p.now)
	p.resort()
	p.foreseeEnds()
	p.passes++
	p.c = p.copyOf(p.base)
	p.count(p.now)
	for _, e := range p.pending {
		if e.state == moving {
			p.hold(e.target.GPUs())
		} else {
			p.hold(e.placement.GPUs())
		}
	}
	p.serve()
	if p.head == nil || p.opt.Backfill != BackfillNone {
		p.walk()
	}
	kept := p.hold(turnGPUs(p.Queue))
	if p.opt.Migrate && !p.full() {
		p.migrate()
	}
	p.grow()
	for _, e := range p.line {
		if e.elastic() { // the pass may have tried it with fewer members
			p.resize(e, e.full.MemberSets[0].Members)
		}
	}
	p.meter(kept)
}

// foreseeEnds gives each gang that should have ended by now a new expected end, at least a second
// in the future.
func (p *pass) foreseeEnds() {
	for _, e := range p.running {
		if e.expectedEnd < p.now {
			e.expectedEnd = p.now + max(time.Second, stretched(p.remaining(e, p.now), e.cost(e.placement)))
		}
	}
}

// start decides that a waiting gang starts on this placement.
func (p *pass) start(e *entry, f pal.Found) {
	p.dequeue(e)
	p.breakPromise(e)
	p.forecasts.learnWait(p.now, e)
	p.resize(e, len(f.Members))
	e.wait.before += p.now - e.wait.since
	e.wait.since = p.now
	e.state, e.placement = starting, f.Placement
	e.expectedEnd = p.now + e.takes(e.memo.expect, f)
	p.countHeld(e, 1)
	p.pending = append(p.pending, e)
	p.started = append(p.started, e)
	p.c.Take(e.job.Gang, f.Placement)
	if p.head != nil && !p.hasTurn(p.head) {
		p.reserve = nil // the head may now do with other GPUs
	}
	p.actions = append(p.actions, Action{Kind: Start, Job: e.job.ID, Found: f})
}

// walk goes through the queue, from the first gang to the last. It tries to start each gang in the
// following ways, in this order:
//
//   - Start the gang if it fits.
//   - Make elastic gangs give back members, and stop other gangs.
//
// The first gang that waits for GPUs is the head, which the gangs behind it must not delay. If a gang
// must wait, the walk tries no other gang with its signature, unless a shorter gang may fit. The walk
// skips gangs for which others are being stopped.
func (p *pass) walk() {
	next := p.inTurns(func(e *entry) bool {
		slack, failed := p.lanes[e.memo.sig]
		return e.promised == nil && (!failed || 0 < slack && e.memo.expect <= slack)
	})
	for !p.full() && (p.head == nil || p.opt.Backfill != BackfillNone) {
		e := next()
		if e == nil {
			return
		}
		sig := e.memo.sig // the signature of an elastic gang changes with its size
		why := p.try(e)
		if why != "" {
			p.lanes[sig] = p.slack
			p.passOver(e, sig, why)
		}
	}
}

// try starts a gang, or stops others for it. If neither is possible, the result says why.
func (p *pass) try(e *entry) (why reason.Kind) {
	p.slack = 0
	if p.overQuota(e) || p.hasTurn(e) {
		return reason.GPUs
	}
	if f, ok := p.fits(e); ok {
		f, by := p.sparing(e, f)
		if by != nil {
			return reason.Spared
		}
		if p.holdsOut(e, f.Placement) {
			return reason.Locality
		}
		p.start(e, f)
		return ""
	}
	why = reason.GPUs
	if p.delayed {
		why = reason.Reserved
	}
	if p.stopFor(e, p.levelNow(e, p.now)) {
		return ""
	}
	// Only a gang that could use the GPUs can be the head, because GPUs are kept for the head.
	if p.head == nil && p.awaits(e) && p.barring(e) == nil {
		p.head = e
	}
	return why
}

// full reports whether the pass has reached its limit of actions.
func (p *pass) full() bool { return p.opt.Starts > 0 && len(p.actions) >= p.opt.Starts }

// fits returns a placement on which the gang can start now. If there is a head, the rules of
// backfilling apply. If an elastic gang does not fit, it keeps its least size for the rest of the
// pass. The caller can then try to free GPUs for this size.
func (p *pass) fits(e *entry) (f pal.Found, ok bool) {
	p.delayed = false
	if e.least() > p.c.FreeGPUs() {
		p.resize(e, e.job.Least)
		return f, false
	}
	f, ok = p.asManyAsFit(e, p.backfill)
	if !ok && p.mayUseOutlier(e) {
		f, ok = p.onOutlier(e)
	}
	return f, ok
}
