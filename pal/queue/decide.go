// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// pass is one run of Decide.
type pass struct {
	planner
	actions []Action
	decided int       // number of starts and claims
	heads   []*tenant // tenants with gangs that the walk still has to try, sorted
	sorted  int       // value of decided when heads was last sorted
	ending  []*entry  // gangs that stop for no other gang, see fitsOnceOthersEnd
}

// at returns a planner for questions about the queue and the cluster at the time `now`. If a
// question does not need the cluster, c can be nil.
func (q *Queue) at(now time.Duration, c *pal.Cluster) planner {
	return planner{finder: finder{Queue: q, whatIf: whatIf{c: c, exclusive: q.opt.Exclusive}, now: now, rooms: map[*fitKind]*room{}, alone: map[beside]bool{}}}
}

// Decide returns what to do now. Decide leaves the cluster unchanged. Each decision stays in force
// until the caller reports the outcome.
//
// First, Decide accounts for the time that has passed and for finished runs. Decide updates overdue
// gangs, ended windows and expected run times. After that, Decide takes four steps. Each step uses
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
	q.age(now)
	if q.windows.ended(now) {
		q.version++ // the windows' GPUs count as newly free
	}
	q.resort()
	q.foreseeEnds(&q.foresight, now)
	q.passes++
	p := &pass{planner: q.at(now, c)}
	defer p.putBack()
	for _, e := range q.running {
		if e.state == stopping && e.stopsFor == nil {
			p.ending = append(p.ending, e)
		}
	}
	p.holdPending()
	p.serve()
	if p.head == nil || q.opt.Backfill != BackfillNone {
		p.walk()
	}
	var kept []int
	if p.turn != nil {
		kept = p.holdToEnd(p.turn.placement)
	}
	if q.opt.Migrate && !p.full() {
		p.migrate()
	}
	p.grow()
	p.account.idle = p.c.Amount(kept...)
	p.checkForecast()
	return p.actions
}

// take marks a placement as used for the rest of the pass.
func (p *finder) take(g pal.Gang, pl pal.Placement) {
	p.c.Take(g, pl)
	p.undo = append(p.undo, func() { p.c.Release(g, pl) })
}

// holdPending holds the GPUs of the starts and moves that earlier passes decided but the caller has
// not reported yet.
func (p *finder) holdPending() {
	for _, e := range p.pending {
		if e.state == moving {
			p.holdToEnd(e.target)
		} else {
			p.holdToEnd(e.placement)
		}
	}
}

// start decides that a waiting gang starts on this placement.
func (p *pass) start(e *entry, f pal.Found) {
	p.leaveQueue(e)
	p.forecasts.learnWait(p.now, e)
	p.resize(e, len(f.Members))
	e.waited += p.now - e.waitingSince
	e.waitingSince = p.now
	e.state, e.placement = starting, f.Placement
	e.expectedEnd = p.now + e.takes(e.expect, f)
	p.countHeld(e, 1)
	p.pending = append(p.pending, e)
	p.started = append(p.started, e)
	p.starts++
	p.decided++
	p.take(e.job.Gang, f.Placement)
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
// must wait, the walk tries no other gang of its bucket, unless a shorter gang may fit. The walk skips
// gangs with a claim.
func (p *pass) walk() {
	for {
		b := p.first()
		if b == nil || p.full() {
			return
		}
		e := p.next(b)
		if p.overQuota(e) || p.hasTurn(e) {
			b.done = p.passes
			continue
		}
		if f, ok := p.fits(b, e); ok {
			f, by := p.sparing(e, f)
			if by != nil || p.holdsOut(e, f.Placement) {
				b.done = p.passes
			} else {
				p.start(e, f)
				p.goOn(b, e)
			}
			continue
		}
		if p.stopFor(e, p.level(e, p.now)) {
			p.goOn(b, e)
			continue
		}
		// Only a gang that could use the GPUs can be the head, because GPUs are kept for the head.
		if p.head == nil && p.awaits(e) && p.barring(e) == nil {
			p.head = e
			if p.opt.Backfill == BackfillNone {
				return
			}
		}
		p.goOn(b, e)
	}
}

// next returns the gang of the bucket that the pass tries next.
func (p *pass) next(b *bucket) *entry {
	if b.passes == p.passes {
		return b.from
	}
	return b.es[0].e
}

// goOn chooses the gang of the bucket that the pass tries after e. If e would end too late, the
// next gang is the first gang behind e whose expected run time is within the slack. If e has left
// the bucket, the next gang is the bucket's new first gang. But if this pass has already skipped
// gangs of the bucket, the next gang's expected run time must also be within the slack.
func (p *pass) goOn(b *bucket, e *entry) {
	first := b.passes != p.passes
	switch {
	case e.bucket != b: // e starts, or others are stopped for e
		if first {
			return
		}
	case p.slack > 0:
		b.slack = p.slack
	default:
		b.done = p.passes
		return
	}
	b.passes, b.from = p.passes, b.after(e.key, b.slack)
	if b.from == nil {
		b.done, b.passes = p.passes, 0
	}
}

// full reports whether the pass has reached its limit of actions.
func (p *pass) full() bool { return p.opt.Starts > 0 && len(p.actions) >= p.opt.Starts }

// possible reports whether the gang would fit on the GPUs that are healthy now if no gang of the
// Queue ran.
func (p *finder) possible(e *entry) bool {
	return p.roomOf(e).ever.of(func() bool { return p.fitsWithout(e, p.withoutRunning) })
}

// awaits reports whether the gang will fit at some time, even if all services keep running.
func (p *finder) awaits(e *entry) bool {
	return p.possible(e) && p.roomOf(e).onceEnded.of(func() bool { return p.endless == 0 || p.fitsWithout(e, p.withoutEnding) })
}

// roomOf returns the cached answers (see room) for gangs of this gang's kind.
func (p *finder) roomOf(e *entry) *room {
	k := p.kindOf(e)
	if p.opt.Exclusive {
		return &k.room
	}
	if p.rooms[k] == nil {
		p.rooms[k] = new(room)
	}
	return p.rooms[k]
}

// doneWith reports whether no gang of the bucket is left for this pass to try.
func (p *pass) doneWith(b *bucket) bool {
	return b.done == p.passes || b.sig.claimed
}

// first returns the bucket whose next gang comes first in the order, or nil if no gang is left to
// try.
func (p *pass) first() *bucket {
	if p.byTenant() {
		return p.firstByTenant()
	}
	var best *bucket
	for _, b := range p.live {
		if !p.doneWith(b) && (best == nil || p.next(b).key.compare(p.next(best).key) < 0) {
			best = b
		}
	}
	return best
}

// fits returns a placement on which the gang can start now. If there is a head, the rules of
// backfilling apply. If an elastic gang does not fit, it keeps its least size for the rest of the
// pass. The caller can then try to free GPUs for this size.
func (p *pass) fits(b *bucket, e *entry) (pal.Found, bool) {
	p.slack = 0
	try := attempt{version: p.version, head: p.head}
	if p.head != nil || len(p.windows.list) > 0 {
		try.first, try.starts = e, p.starts // the result also depends on this gang, and on which gangs have started
	}
	if e.job.Gang.Sharing != nil {
		try.starts = p.starts // the gangs on a shared GPU decide which other gangs can join them
	}
	if e.least() > p.c.FreeGPUs() {
		p.toLeast(e)
		return pal.Found{}, false
	}
	if p.opt.Exclusive && b.failed == try {
		p.slack = b.failedUntil - p.now
		p.toLeast(e)
		return pal.Found{}, false
	}
	f, ok := p.asManyAsFit(e, p.backfill)
	if !ok && p.mayUseOutlier(e) {
		if f, ok = p.onOutlier(e); !ok {
			return f, false // record no failed attempt: the gang may soon accept an outlier that is free now
		}
	}
	if !ok {
		b.failed, b.failedUntil = try, p.now+p.slack
	}
	return f, ok
}
