// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

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
func (p *pass) backfill(e *entry) (f pal.Found, ok bool) {
	p.delayed = false
	f, ok = p.find(e)
	if !ok || p.head == nil || !p.delays(e, f) {
		return f, ok
	}
	slack := p.reserve.at - p.now
	p.besides(p.reserve.placement.GPUs(), func() {
		was := f
		if f, ok = p.find(e); !ok {
			p.slack, p.delayed = atMostLongest(float64(slack)/e.cost(was.Placement)), true
		}
	})
	return f, ok
}

// hasTurn reports whether the gang is overdue and has its turn.
func (q *Queue) hasTurn(e *entry) bool { return q.turn != nil && q.turn.head == e }

// mayDelay reports whether the Queue must check that this gang does not delay the head. With
// BackfillBestEffort, no check is necessary. For a preemptible gang, a check is necessary only if
// the head has a higher priority. The package comment explains why. The turn of an overdue gang is
// never delayed.
func (p *pass) mayDelay(e *entry) bool {
	return p.hasTurn(p.head) || p.opt.Backfill != BackfillBestEffort && (!p.stoppable(e) || p.behind(e) > p.behind(p.head))
}

// delays reports whether a gang that starts now on this placement could delay the head. If the
// head's start cannot be predicted, the result is false.
func (p *pass) delays(e *entry, f pal.Found) bool {
	if !p.mayDelay(e) {
		return false
	}
	r := p.headReserve()
	return r.known && !p.endsBy(e, f, r.at) && !p.stoppableBy(e, r.at)
}

// endsBy reports whether a gang that starts on this placement now is expected to have ended by the
// given time.
func (p *finder) endsBy(e *entry, f pal.Found, at time.Duration) bool {
	return !e.job.Endless && p.now+e.takes(e.memo.expect, f) <= at
}

// foreseeHead computes the head's reservation. Call foreseeHead before the what-if frees GPUs for
// the gang e. Otherwise, the head's reservation could include these GPUs.
func (p *pass) foreseeHead(e *entry) {
	if p.head != nil && p.mayDelay(e) {
		p.headReserve()
	}
}

// headReserve returns the head's reservation. The first call computes it.
func (p *pass) headReserve() *reservation {
	if p.reserve == nil {
		p.reserve = p.reserveFor(p.head, p.levelNow(p.head, p.now))
	}
	return p.reserve
}

// ending is the time at which members of a gang free their GPUs for a head.
type ending struct {
	*entry
	at       time.Duration
	from, to int   // the members from…to-1
	marked   []int // set for a gang that will get its GPUs later: these GPUs
}

// endingOf returns the ending of all members of a gang.
func endingOf(e *entry, at time.Duration) ending {
	return ending{entry: e, at: at, to: len(e.placement.Members)}
}

// frees returns the GPUs that become free.
func (e ending) frees() []int {
	if e.marked != nil {
		return e.marked
	}
	return pal.Placement{Members: e.placement.Members[e.from:e.to]}.GPUs()
}

// touches reports whether at least one of the GPUs is in the set.
func (e ending) touches(set map[int]bool) bool {
	return slices.ContainsFunc(e.frees(), func(u int) bool { return set[u] })
}

// leave frees the GPUs of an ending.
func (p *pass) leave(e ending) {
	if e.marked != nil {
		unmark(p.c, e.marked)
	} else {
		p.free(p.c, e.entry, e.from, e.to)
	}
}

// endings returns when GPUs come free for a head, the earliest time first. A gang frees GPUs when it
// is expected to end or, if it may be stopped for the head or gives back members, when that is possible.
// The head counts as a gang of the given level. The call also changes the cluster. Gangs that are
// being stopped, shrunk or moved free their GPUs at once, and the gangs that get these GPUs next take
// them.
func (p *pass) endings(head *entry, level int) (ends []ending) {
	add := func(e ending) {
		if p.ends(e.entry) {
			ends = append(ends, e)
		}
	}
	for _, e := range p.running {
		soon, n := min(e.expectedEnd, max(p.now, e.safeUntil())), len(e.placement.Members)
		switch {
		case e.state == stopping:
			stays := len(e.target.Members)
			p.free(p.c, e, stays, n)
			add(ending{entry: e, at: e.expectedEnd, to: stays})
		case e.state == moving:
			p.free(p.c, e, 0, n)
		case p.stoppable(e) && p.mayPreempt(e, head, level, nil):
			add(endingOf(e, soon))
		case p.lends(e, head, level, nil):
			add(ending{entry: e, at: e.expectedEnd, to: e.job.Least})
			add(ending{entry: e, at: soon, from: e.job.Least, to: n})
		default:
			add(endingOf(e, e.expectedEnd))
		}
	}
	gets := func(e *entry, at time.Duration, gpus []int) {
		p.hold(gpus)
		add(ending{entry: e, at: at, marked: gpus})
	}
	for _, e := range p.pending { // including those of this pass
		if e.state == starting {
			add(endingOf(e, e.expectedEnd))
		} else {
			gets(e, e.expectedEnd, e.target.GPUs())
		}
	}
	for _, e := range p.claims {
		on := e.promised.placement
		if len(on.Members) > 0 {
			gets(e, e.endOn(on, p.now), on.GPUs())
		}
	}
	sortEndings(ends)
	return ends
}

// sortEndings sorts endings by time, the earliest first.
func sortEndings(ends []ending) {
	slices.SortStableFunc(ends, func(a, b ending) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
}

// reserveFor returns a reservation with the predicted start of the head: when and on which GPUs. In
// a copy of the cluster, it ends the running gangs in the order of their endings until the head fits.
// Each further try ends twice as many gangs. Doubling needs few searches, but the predicted start
// can be too late.
func (p *pass) reserveFor(head *entry, level int) *reservation {
	r, free := &reservation{head: head, at: p.now}, p.freeNow()
	p.whatIf(func() {
		before := p.c.FreeGPUs()
		ends := p.endings(head, level)
		done, next := 0, 1
		if p.c.FreeGPUs() != before {
			next = 0 // gangs that are already leaving may free enough GPUs
		}
		for {
			for ; done < len(ends) && (p.c.FreeGPUs() < head.gpus || next > 0 || ends[done].at <= r.at); done++ {
				p.leave(ends[done])
				r.at, next = max(p.now, ends[done].at), next-1
			}
			if p.c.FreeGPUs() >= head.gpus {
				r.placement, r.known = p.placeOnBusy(head, free, r.at)
			}
			if r.known || done == len(ends) {
				return
			}
			next = 1 + done
		}
	})
	return r
}

// placeOnBusy returns a placement for a start at the given time. If that costs nothing, the placement
// leaves the given free GPUs to other gangs. An overdue gang may start sooner, so it avoids the windows
// of today.
func (p *pass) placeOnBusy(head *entry, free []int, at time.Duration) (best pal.Placement, ok bool) {
	if !head.wait.overdue {
		p.startsAt = at
		defer func() { p.startsAt = 0 }()
	}
	if best, ok = p.place(head); !ok {
		return best, false
	}
	p.besides(free[:min(len(free), p.c.FreeGPUs()-head.gpus)], func() {
		busy, fits := p.place(head)
		if fits && busy.Cost() <= best.Cost() {
			best = busy
		}
	})
	return best, true
}
