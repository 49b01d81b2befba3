// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"time"
)

// A gang with a deadline waits at its place in the order until that is in danger. Then
// it goes before all but the overdue, those first that must start first. Once the deadline cannot be met any
// more it is a gang like any: to go first would only make others late.

// inDanger is from how many of its run times before its deadline on a gang is in danger:
// from 2, it can wait for as long as it runs and still be in time. The run time is what
// nine of ten like it take at most.
const inDanger = 2

// urgency is when a waiting gang's deadline is in danger.
type urgency struct {
	on       bool
	from, to time.Duration
}

// urgencyRank is before all ranks of orders, by more than any time in seconds.
const urgencyRank = -1e12

// expectUrgency works out when the gang's deadline is in danger, by what is expected of
// it.
func (fs *foresight) expectUrgency(e *entry) {
	if e.job.Deadline == 0 || !fs.opt.Deadlines {
		return
	}
	long := fs.longest(e, e.waitingSince)
	e.urgency.from = e.job.Deadline - inDanger*long
	e.urgency.to = e.job.Deadline - min(long, e.expect)
}

// urgentKey puts a gang whose deadline is in danger first.
func (e *entry) urgentKey(k key) key {
	if e.urgency.on {
		k.rank = urgencyRank + e.startBy().Seconds()
	}
	return k
}

// startBy is the latest start by which nine of ten gangs like it meet its deadline: one
// run time before it.
func (e *entry) startBy() time.Duration { return (e.job.Deadline + e.urgency.from) / inDanger }

// hurry notes which deadlines have come into danger, and which are lost.
func (q *Queue) hurry(now time.Duration) {
	for _, e := range q.dated {
		if on := e.urgency.from <= now && now <= e.urgency.to; on != e.urgency.on {
			e.urgency.on = on
			e.key = q.keyOf(e)
			e.bucket.fix(e)
		}
	}
}

// nextUrgency calls soon with each time at which a deadline comes into danger or is
// lost.
func (bk *book) nextUrgency(soon func(time.Duration)) {
	for _, e := range bk.dated {
		soon(e.urgency.from)
		soon(e.urgency.to + 1)
	}
}

// Deadline is how a waiting gang stands to its deadline.
type Deadline struct {
	// StartBy is the latest start by which nine of ten gangs like it are done in time,
	// LostAt the one after which it is expected to be late.
	StartBy, LostAt time.Duration
	// Urgent: only the overdue go before it, as the deadline is in danger; Lost: it cannot be met.
	Urgent, Lost bool
	// Assumed is how long the gang is taken to run where neither its user nor its history tells, and its
	// deadline has not passed: StartBy and LostAt then hold only if it does.
	Assumed time.Duration
}

// DeadlineOf is how a waiting job stands to its deadline; ok is false where it has none,
// or deadlines do not count.
func (q *Queue) DeadlineOf(now time.Duration, id string) (d Deadline, ok bool) {
	e := q.entries[id]
	if e == nil || e.state != waiting || e.job.Deadline == 0 || !q.opt.Deadlines {
		return d, false
	}
	u := e.urgency
	d = Deadline{StartBy: e.startBy(), LostAt: u.to, Urgent: u.from <= now && now <= u.to, Lost: now > u.to}
	if !q.told(e) && now <= e.job.Deadline {
		d.Assumed = e.expect
	}
	return d, true
}
