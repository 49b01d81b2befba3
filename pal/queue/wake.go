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
	if len(q.ages.es) > 0 {
		soon(q.ages.es[0].overdueFrom())
	}
	soon(q.localityUntil)
	if len(q.windows.list) > 0 {
		soon(q.windows.nextTo)
	}
	if q.turn == nil && len(q.overdue.es) > 0 {
		// The share of overdue gangs pays off this many GPU seconds per second.
		if paid := q.account.allowance() - q.account.used; q.account.debt > 0 && paid > 0 {
			soon(q.account.at + time.Duration(math.Ceil(q.account.debt/paid*float64(time.Second))))
		}
	}
	if q.opt.Preempt && len(q.live) > 0 {
		q.levels.stopsFrom(&q.foresight, now, soon)
	}
	for _, e := range q.elastics {
		soon(e.safeUntil) // from then on it may shrink or grow
	}
	if q.opt.Migrate && len(q.live) == 0 {
		for _, e := range q.running {
			if e.job.Migratable && !e.settled && e.placement.Cost() > 1 {
				soon(now + q.opt.Quantum)
				break
			}
		}
	}
	return at, at < math.MaxInt64
}
