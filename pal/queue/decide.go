// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// whatIf is the cluster as it would be. Whatever is taken, released or held in it is put back, in reverse
// order, so that each step is undone in the state that it left behind.
type whatIf struct {
	c         *pal.Cluster
	exclusive bool // nobody but the Queue takes GPUs of it
	undo      []func()
	kept      []int // GPUs held until its end
	hidden    []int // GPUs kept for the overdue gang whose turn it is
	// changed is the gang that [Queue.RoomFor] is asked about, own the GPUs that it has: marked as
	// taken, or free and then not here.
	changed *entry
	own     []int
}

// finder finds GPUs for one gang: where it fits now, where it would fit once others have ended, and what
// it would rather wait for. It neither knows who else waits nor decides anything.
type finder struct {
	*Queue
	whatIf
	now     time.Duration
	started []*entry // in this pass
	// slack says, after a gang did not fit, how long one like it may run to fit all the
	// same, at cost 1; 0: it is not the run time that matters.
	slack time.Duration
	// startsAt is when the gang would start that GPUs are looked for; 0: now.
	startsAt   time.Duration
	windowless bool                  // see withoutWindows
	rooms      map[*fitKind]*room    // on a cluster that is not exclusive
	alone      map[beside]*pal.Found // see aloneBesideWindows
}

// planner foresees who comes after: the head's reservation, what a turn keeps, and who may be stopped
// for whom. What it finds for a gang delays nobody whom it must not delay.
type planner struct {
	finder
	head    *entry // the first that did not fit
	reserve *reservation
}

// pass is one run of Decide: it goes through the queue and decides.
type pass struct {
	planner
	actions []Action
	decided int       // starts, and gangs that get what others free
	heads   []*tenant // with gangs that the walk has yet to try, sorted
	sorted  int       // when so much was decided
}

// at looks at the queue and the cluster at a time. A question that needs no cluster gives none.
func (q *Queue) at(now time.Duration, c *pal.Cluster) planner {
	return planner{finder: finder{Queue: q, whatIf: whatIf{c: c, exclusive: q.opt.Exclusive}, now: now, rooms: map[*fitKind]*room{}}}
}

// Decide says what to do now. It leaves the cluster as it is; what it decided
// stays decided until it is reported back.
//
// First it brings up to date what the clock and finished runs have changed: who is
// overdue, which windows have ended, what is expected of gangs, whose deadline is in
// danger. Then each step has the GPUs that those before it left:
//
//  1. Earlier decisions: their GPUs are held, and gangs start whose victims have stopped. Those whose
//     victims have not may still start elsewhere, in their turn. So are those of members that are about
//     to be moved (Moving).
//  2. Overdue gangs have their turn. It comes before the queue, or an order that never
//     reaches them could starve them.
//  3. The queue, first to last.
//  4. Running gangs: some move to better GPUs, elastic ones grow on what is left.
//
// A pass looks for GPUs once for each kind of gang that waits (see signature), not for
// each gang; reservations, preemption and moves look again.
func (q *Queue) Decide(now time.Duration, c *pal.Cluster) []Action {
	q.age(now)
	if q.windows.ended(now) {
		q.version++ // their GPUs are as if they had come free
	}
	q.resort()
	q.hurry(now)
	q.foreseeEnds(&q.foresight, now)
	q.crowd(q.live, c)
	q.passes++
	p := &pass{planner: q.at(now, c)}
	defer p.putBack()
	p.holdPending()
	p.claims()
	p.keepForMoving()
	p.serve()
	if p.turn == nil || q.opt.Backfill != BackfillNone {
		p.walk()
	}
	if q.opt.Migrate && now >= q.movesFrom && !p.full() {
		p.migrate()
	}
	p.grow()
	p.account.idle = len(p.hidden)
	p.checkForecast()
	return p.actions
}

// putBack leaves the cluster as it was before the pass, whatever has happened.
func (p *whatIf) putBack() {
	for _, undo := range slices.Backward(p.undo) {
		undo()
	}
}

// take marks a placement as used for the rest of the pass.
func (p *finder) take(g pal.Gang, pl pal.Placement) {
	if len(p.hidden) > 0 { // it may use some of them (onKept), and only a free GPU can be taken
		p.show()
		defer p.hide()
	}
	p.c.Take(g, pl)
	p.undo = append(p.undo, func() { p.c.Release(g, pl) })
}

// vacate frees the GPUs of a running gang in the what-if; it returns what
// takes them again. A member whose GPUs the cluster does not hold taken is left
// out: it has ended, or a GPU of it failed, and the Queue is yet to be told.
func (p *whatIf) vacate(e *entry) (back func()) {
	if p.changed != nil && e.seq == p.changed.seq { // or some of its members, see with
		on := setOf(e.placement.GPUs())
		return p.unmark(slices.DeleteFunc(slices.Clone(p.own), func(u int) bool { return !on[u] }))
	}
	pl := e.placement
	if !p.exclusive {
		pl.Members = slices.DeleteFunc(slices.Clone(pl.Members), func(m pal.Member) bool {
			return slices.ContainsFunc(m.GPUs, func(u int) bool { return !p.taken(u) })
		})
	}
	p.c.Release(e.job.Gang, pl)
	return func() { p.c.Take(e.job.Gang, pl) }
}

// taken reports whether a GPU is in use, by a gang or otherwise. A GPU that is out of use
// does not count: it could not be chosen if it were free either.
func (p *whatIf) taken(u int) bool {
	if p.c.Available(u) {
		return false
	}
	gpu := p.c.GPU(u)
	return !gpu.Unhealthy && !gpu.Quarantined && !gpu.Unavailable
}

// keep holds the free GPUs of a placement until the end of the pass. Those that are
// still in use are kept from others by whoever uses them.
func (p *whatIf) keep(pl pal.Placement) (held []int) {
	held, free := p.hold(pl.GPUs())
	p.kept = append(p.kept, held...)
	p.undo = append(p.undo, free)
	return held
}

// hold keeps those of the GPUs that are free from being chosen; free lets them go again.
func (p *whatIf) hold(gpus []int) (held []int, free func()) {
	for _, u := range gpus {
		if u < p.c.NumGPUs() && p.c.Available(u) {
			p.c.SetTaken(u, true)
			held = append(held, u)
		}
	}
	return held, func() {
		for _, u := range held {
			p.c.SetTaken(u, false)
		}
	}
}

// setOf is the set of the GPUs, touches whether any that a placement has is in a set.
func setOf(gpus []int) map[int]bool {
	set := make(map[int]bool, len(gpus))
	for _, u := range gpus {
		set[u] = true
	}
	return set
}

func touches(pl pal.Placement, set map[int]bool) bool { return firstOn(pl, set) >= 0 }

// firstOn is the first member that has a GPU of the set; -1 for none.
func firstOn(pl pal.Placement, set map[int]bool) int {
	return slices.IndexFunc(pl.Members, func(m pal.Member) bool {
		return slices.ContainsFunc(m.GPUs, func(u int) bool { return set[u] })
	})
}

// holdPending holds the GPUs of starts and moves that were decided earlier and
// are not reported yet.
func (p *finder) holdPending() {
	for _, e := range p.pending {
		if e.state == moving {
			p.keep(e.target)
		} else {
			p.keep(e.placement)
		}
	}
}

// keepForMoving holds GPUs for the members that are about to be moved: while they still run, these count as
// free. Nothing that was promised before is one of them.
func (p *finder) keepForMoving() {
	for _, places := range p.drained {
		for _, g := range places {
			if pl, ok := pal.Place(p.c, g, p.opt.Placement); ok {
				p.keep(pl)
				break
			}
		}
	}
}

// start decides that a waiting gang starts on the placement. From here on its GPUs
// count as its tenant's. The head's reservation is only marked: it is worked out again
// when somebody needs it, not after each start.
func (p *pass) start(e *entry, f pal.Found) {
	if e.claim != nil {
		p.letGo(e.claim)
	}
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
	if p.reserve != nil {
		p.reserve.stale = true
	}
	p.actions = append(p.actions, Action{Kind: Start, Job: e.job.ID, Found: f})
}

// walk goes through the queue, first to last. A gang that fits starts; else it has those that are
// coming free for nobody, or elastic gangs shrink for it, or others are stopped; else it waits, and the first that does is the
// head, whom those behind it must not delay. A gang that others are being stopped for starts, at its
// place, if it fits elsewhere; it is not the head. A bucket with a gang that neither
// fits nor finds victims is done with, as its other gangs would not either, except that
// where gangs only backfill, those of it that end in time are tried too.
func (p *pass) walk() {
	p.retries()
	for {
		b := p.first()
		if b == nil || p.full() {
			return
		}
		e := p.next(b)
		if e.claim != nil {
			p.retry(b, e)
			continue
		}
		if p.overQuota(e) || p.turn != nil && p.turn.by == e {
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
		if p.takeOver(e) || p.shrinkFor(e, p.level(e, p.now)) || p.preemptFor(e) {
			p.goOn(b, e)
			continue
		}
		// To keep GPUs for a gang that could not use them would help nobody.
		if p.head == nil && p.awaits(e) && p.barring(e) == nil {
			p.head = e
			if p.opt.Backfill == BackfillNone {
				return
			}
		}
		p.goOn(b, e)
	}
}

// next is the gang of the bucket that the pass tries next: its first, or where goOn has
// brought the pass.
func (p *pass) next(b *bucket) *entry {
	switch {
	case b.sig.claimed:
		return b.tries[0]
	case b.passes == p.passes:
		return b.from
	}
	return b.es[0].e
}

// goOn brings the pass to the next gang of the bucket that is worth a try, after e; without one
// the pass is done with the bucket. While gangs leave it, as they start or others are stopped for
// them, that is its new first one. Behind a gang that would end too late it is the next, in order, that is expected to run no
// longer than the slack. To find one takes a look at each place of the bucket: the
// heap is sorted by key, not by run time.
func (p *pass) goOn(b *bucket, e *entry) {
	first := b.passes != p.passes
	switch {
	case e.bucket != b: // it starts, or others are stopped for it
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

// full reports whether the pass has decided all that it may.
func (p *pass) full() bool { return p.opt.Starts > 0 && len(p.actions) >= p.opt.Starts }

// possible reports whether the gang could run at all, with what is healthy now. Where the
// cluster is exclusive the answer stays until Changed.
func (p *finder) possible(e *entry) bool {
	return p.roomOf(e).ever.of(func() bool { return p.fitsWithout(e, p.withoutRunning) })
}

// awaits reports whether GPUs for the gang come free some time. For one that waits for services to
// be stopped none are kept, and it holds nobody up.
func (p *finder) awaits(e *entry) bool {
	return p.possible(e) && p.roomOf(e).onceEnded.of(func() bool { return p.endless == 0 || p.fitsWithout(e, p.withoutEnding) })
}

// roomOf is what is known of the room for gangs of the kind: on a cluster that is not exclusive, in
// this pass.
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

// doneWith reports whether the pass has no gang of the bucket to try.
func (p *pass) doneWith(b *bucket) bool {
	return b.done == p.passes || b.sig.claimed && len(b.tries) == 0
}

// first is the bucket whose first gang goes first, nil if none is left. It
// looks at each kind of gang that waits, at each step of the walk.
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

// fits looks for a placement now, under the rules of backfilling if somebody
// ahead is waiting for GPUs. Where the cluster is exclusive, what failed is not
// tried again before GPUs come free. An elastic gang that does not fit is left at its
// least size: with that it looks for GPUs to be freed.
func (p *pass) fits(b *bucket, e *entry) (pal.Found, bool) {
	p.slack = 0
	try := attempt{version: p.version, head: p.head, turn: p.turn}
	if p.head != nil || p.turn != nil || e.claim != nil || len(p.windows.list) > 0 {
		try.first, try.starts = e, p.starts // how long it runs matters too, or what is held for it, and the others do
	}
	if e.least() > p.c.FreeGPUs()+len(p.hidden) {
		p.toLeast(e)
		return pal.Found{}, false
	}
	if p.opt.Exclusive && b.failed == try {
		p.slack = b.failedUntil - p.now
		p.toLeast(e)
		return pal.Found{}, false
	}
	f, ok := p.asManyAsFit(e, p.backfill)
	if !ok && p.turn != nil {
		f, ok = p.asManyAsFit(e, p.onKept)
	}
	if !ok && p.mayUseOutlier(e) {
		if f, ok = p.onOutlier(e); !ok {
			return f, false // it may fit soon, though nothing comes free
		}
	}
	if !ok {
		b.failed, b.failedUntil = try, p.now+p.slack
	}
	return f, ok
}
