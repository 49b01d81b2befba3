// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"time"
)

// Wake is when to call Decide again if nothing happens until then: somebody
// becomes overdue, or preemption or migration may pay by then. ok is false
// where only an event can change anything.
func (l *Line) Wake(now time.Duration) (at time.Duration, ok bool) {
	at = math.MaxInt64
	soon := func(t time.Duration) {
		if t > now {
			at = min(at, t)
		}
	}
	if len(l.ages.es) > 0 {
		soon(l.ages.es[0].waitingSince - l.ages.es[0].waited + l.opt.MaxWait)
	}
	soon(l.localityUntil)
	l.nextUrgency(soon)
	if len(l.windows.list) > 0 {
		soon(l.windows.nextTo)
	}
	if l.turn == nil && len(l.overdue.es) > 0 {
		if paid := l.allowance() - float64(l.account.used); l.account.debt > 0 && paid > 0 {
			soon(l.account.at + time.Duration(math.Ceil(l.account.debt/paid*float64(time.Second))))
		}
	}
	if l.opt.Preempt && len(l.live) > 0 {
		l.stopsFrom(now, soon)
	}
	if l.opt.Migrate && len(l.live) == 0 {
		for _, e := range l.running {
			if e.job.Migratable && e.placement.Cost() > 1 {
				soon(now + l.opt.Quantum)
				break
			}
		}
	}
	return at, at < math.MaxInt64
}
