// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// planner computes the reservation of the head, and finds the gangs that can be stopped for another
// gang.
type planner struct {
	finder
	head    *entry // the overdue gang whose turn it is or, without one, the first gang that did not fit; nil: none
	reserve *reservation
}

// reservation contains the time and the GPUs of the head's expected start. As in EASY (Lifka 1995),
// only the head has a reservation.
type reservation struct {
	head      *entry
	at        time.Duration // since the caller's epoch
	placement pal.Placement
	known     bool // false: the head would not fit even after the end of all gangs that end
	// last is set for an overdue gang: MaxWait after its turn began. From then on, no other gang
	// starts on the reserved GPUs.
	last time.Duration
}

// backfill returns a placement for the gang that does not delay the head. A gang does not delay the
// head if it ends before the head's start, or if it uses none of the head's GPUs.
func (p *planner) backfill(e *entry) (pal.Found, bool) {
	f, ok := p.find(e)
	if !ok || p.head == nil || !p.delays(e, f) {
		return f, ok
	}
	_, free := p.hold(p.reserve.placement.GPUs())
	beside, ok := p.find(e)
	if free(); ok {
		return beside, true
	}
	p.slack = e.does(p.reserve.at-p.now, f)
	return pal.Found{}, false
}

// hasTurn reports whether the gang is overdue and has its turn.
func (q *Queue) hasTurn(e *entry) bool { return q.turn != nil && q.turn.head == e }

// mayDelay reports whether the Queue must check that this gang does not delay the head. With
// BackfillBestEffort, no check is necessary. For a preemptible gang, a check is necessary only if
// the head has a higher priority. The package comment explains why. The turn of an overdue gang is
// never delayed.
func (p *planner) mayDelay(e *entry) bool {
	return p.hasTurn(p.head) || p.opt.Backfill != BackfillBestEffort && (!p.stoppable(e) || p.behind(e) > p.behind(p.head))
}

// delays reports whether a gang that starts now on this placement could delay the head. If the
// head's start cannot be predicted, the result is false.
func (p *planner) delays(e *entry, f pal.Found) bool {
	if !p.mayDelay(e) {
		return false
	}
	r := p.headReserve()
	return r.known && !p.endsBy(e, f, r.at) && !p.stoppableBy(e, r.at)
}

// endsBy reports whether a gang that starts on this placement now is expected to have ended by the
// given time.
func (p *finder) endsBy(e *entry, f pal.Found, at time.Duration) bool {
	return !e.job.Endless && p.now+e.takes(e.expect, f) <= at
}

// foreseeHead computes the head's reservation. Call foreseeHead before the what-if frees GPUs for
// the gang e. Otherwise, the head's reservation could include these GPUs.
func (p *planner) foreseeHead(e *entry) {
	if p.head != nil && p.mayDelay(e) {
		p.headReserve()
	}
}

// headReserve returns the head's reservation. The first call computes it.
func (p *planner) headReserve() *reservation {
	if p.reserve == nil {
		p.reserve = p.reserveFor(p.head, p.level(p.head, p.now))
	}
	return p.reserve
}

// ending is the time at which a gang frees its GPUs for a head.
type ending struct {
	*entry
	at     time.Duration
	marked []int // set for a gang that will get its GPUs later: these GPUs; nil: those of its placement
}

// frees returns the GPUs that become free.
func (e ending) frees() []int {
	if e.marked == nil {
		return e.placement.GPUs()
	}
	return e.marked
}

// touches reports whether at least one of the GPUs is in the set.
func (e ending) touches(set map[int]bool) bool {
	return slices.ContainsFunc(e.frees(), func(u int) bool { return set[u] })
}

// endings returns when GPUs come free for a head, the earliest time first. A gang frees GPUs when it
// is expected to end or, if it may be stopped for the head or gives back members, when that is possible.
// The head counts as a gang of the given level. The call also changes the what-if. Gangs that are
// being stopped, shrunk or moved free their GPUs at once, and the gangs that get these GPUs next take
// them. The functions in `back` undo these changes.
func (p *planner) endings(head *entry, level int) (ends []ending, back []func()) {
	if p.opt.Preempt {
		p.levels.relevel(&p.foresight, p.now)
	}
	ends = make([]ending, 0, len(p.byEnd)+len(p.pending)+len(p.Queue.claims))
	add := func(e *entry, at time.Duration, marked []int) {
		if p.ends(e) {
			ends = append(ends, ending{e, at, marked})
		}
	}
	for _, e := range p.byEnd {
		soon := min(e.expectedEnd, max(p.now, e.safeUntil))
		switch {
		case e.state == stopping:
			back = append(back, p.vacateMembers(e, len(e.target.Members), len(e.placement.Members)))
			add(e.with(0, len(e.target.Members)), e.expectedEnd, nil)
		case e.state == moving:
			back = append(back, p.vacate(e))
		case e.level != nil && p.mayPreempt(e, head, level, nil):
			add(e, soon, nil)
		case e != p.changed && p.lends(e, head, level, nil):
			add(e.with(0, e.job.Least), e.expectedEnd, nil)
			add(e.with(e.job.Least, len(e.placement.Members)), soon, nil)
		default:
			add(e, e.expectedEnd, nil)
		}
	}
	gets := func(e *entry, at time.Duration, gpus []int) {
		_, free := p.hold(gpus)
		back = append(back, free)
		add(e, at, gpus)
	}
	for _, e := range p.pending { // including those of this pass
		if e.state == starting {
			add(e, e.expectedEnd, nil)
		} else {
			gets(e, e.expectedEnd, e.target.GPUs())
		}
	}
	for _, c := range p.Queue.claims {
		if len(c.placement.Members) > 0 {
			gets(c.by, c.by.endOn(c.placement, p.now), c.placement.GPUs())
		}
	}
	sortEndings(ends)
	return ends, back
}

// sortEndings sorts endings by time, the earliest first.
func sortEndings(ends []ending) {
	slices.SortFunc(ends, func(a, b ending) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
}

// leave frees the GPUs of an ending in the what-if.
func (p *planner) leave(e ending) (back func()) {
	if e.marked != nil {
		return p.unmark(e.marked)
	}
	return p.gone(e.entry)
}

// reserveFor returns a reservation with the predicted start of the head: when and on which GPUs. In
// the what-if, it ends the running gangs in the order of their endings until the head fits.
// Each further try ends twice as many gangs. Doubling needs few searches, but the predicted start
// can be too late.
func (p *planner) reserveFor(head *entry, level int) *reservation {
	r, free := &reservation{head: head}, p.freeNow()
	ends, back := p.endings(head, level)
	defer func() { undoAll(back) }()
	at, done, next := p.now, 0, 1
	if len(back) > 0 {
		next = 0 // gangs that are already leaving may free enough GPUs
	}
	for {
		for ; done < len(ends) && (p.c.FreeGPUs() < head.gpus || next > 0 || ends[done].at <= at); done++ {
			back = append(back, p.leave(ends[done]))
			at, next = max(p.now, ends[done].at), next-1
		}
		if p.c.FreeGPUs() >= head.gpus {
			r.placement, r.known = p.placeOnBusy(head, free, at)
		}
		if r.at = at; r.known || done == len(ends) {
			return r
		}
		next = 1 + done
	}
}

// placeOnBusy returns a placement for a start at the given time. If that costs nothing, the placement
// leaves the given free GPUs to other gangs. An overdue gang may start sooner, so it avoids the windows
// of today.
func (p *planner) placeOnBusy(head *entry, free []int, at time.Duration) (pal.Placement, bool) {
	if !head.overdue {
		defer p.startingAt(at)()
	}
	best, ok := p.place(head)
	if !ok {
		return best, false
	}
	_, show := p.hold(free[:min(len(free), p.c.FreeGPUs()-head.gpus)])
	defer show()
	if busy, fits := p.place(head); fits && busy.Cost() <= best.Cost() {
		return busy, true
	}
	return best, true
}
