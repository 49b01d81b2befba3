// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"time"
)

// Wake returns when to call Decide again if no event is reported before that time. For example, a
// gang then becomes overdue, or a window ends. ok is false if only an event can change anything. A
// call of Decide that is too early does no harm.
func (q *Queue) Wake(now time.Duration) (at time.Duration, ok bool) {
	at = math.MaxInt64
	soon := func(t time.Duration) {
		if t > now {
			at = min(at, t)
		}
	}
	paid := q.account.allowance() - q.account.used
	for _, e := range q.line {
		if !e.wait.overdue {
			soon(e.overdueFrom())
		} else if q.turn == nil && q.account.debt > 0 && paid > 0 {
			// The share of overdue gangs pays off this many GPU seconds per second.
			soon(q.account.at + time.Duration(math.Ceil(q.account.debt/paid*float64(time.Second))))
		}
	}
	soon(q.localityUntil)
	for _, w := range q.windows {
		soon(w.To)
	}
	for _, e := range q.all {
		if e.state < running {
			continue
		}
		if q.stoppable(e) && len(q.line) > 0 {
			q.stopsFrom(e, now, soon)
		}
		if e.elastic() {
			soon(e.safeUntil()) // from then on it may shrink or grow
		}
		if q.opt.Migrate && len(q.line) == 0 && e.job.Migratable && !e.settled && e.placement.Cost() > 1 {
			soon(now + q.opt.Quantum)
		}
	}
	return at, at < math.MaxInt64
}

// stopsFrom calls `soon` with each time at which a running gang may become a victim. Under SRTF and
// Adaptive, the time at which a gang reaches a worse level is unknown, so stopsFrom assumes a
// quarter of a quantum from now.
func (fs *foresight) stopsFrom(e *entry, now time.Duration, soon func(time.Duration)) {
	soon(e.safeUntil())
	if at, ok := e.nextCheckpoint(now); ok {
		soon(at)
	}
	switch fs.opt.Order {
	case SRTF, Adaptive:
		soon(now + fs.opt.Quantum/4)
	default:
		if fs.relevel(e, now); e.memo.levelDue < math.MaxInt64 {
			soon(e.memo.levelDue + 1) // levelDue was rounded down
		}
	}
}
