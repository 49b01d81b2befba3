// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import "time"

// Ends foretells between when a running gang ends: from if it runs as long as expected,
// to if its remaining work takes twice as long, both since the caller's epoch. ok is
// false for a gang that does not run, and for one whose end can only be guessed: nothing
// is known of its run time, or it is a service.
func (q *Queue) Ends(now time.Duration, id string) (from, to time.Duration, ok bool) {
	e := q.entries[id]
	if e == nil || e.state == waiting || e.state == starting || e.job.Endless {
		return 0, 0, false
	}
	p := &pass{Queue: q, now: now}
	left, ok := p.foretell(e)
	if !ok {
		return 0, 0, false
	}
	cost := e.cost(e.placement)
	at := func(work time.Duration) time.Duration {
		return now + stretched(e.bounded(now, work), cost)
	}
	return at(left), at(stretched(left, 2)), true
}
