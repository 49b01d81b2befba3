// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"time"
)

// A gang with a deadline keeps its place in the order until the deadline is in danger. Then it goes
// before the other gangs of its tenant and priority, but after overdue gangs whose turn it is. Among
// several such gangs, the one that must start first goes first. Once the deadline cannot be met, the
// gang loses this advantage: going first would only make others late.

// inDanger × the gang's run time before the deadline, the deadline comes into danger. With 2, a
// gang can then still wait for as long as it runs and be in time. The run time used here is one
// that nine of ten similar gangs do not exceed.
const inDanger = 2

// urgency is the span in which a waiting gang's deadline is in danger. Before from there is time
// enough; after to the deadline cannot be met. hurry sets on while the span lasts.
type urgency struct {
	on       bool
	from, to time.Duration
}

// urgencyRank comes before every rank of an order, even if any time in seconds is added to it.
const urgencyRank = -1e12

// expectUrgency computes the span in which the gang's deadline is in danger, from its expected run
// time.
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

// startBy returns the latest start with which nine of ten similar gangs meet the deadline: one run
// time (see inDanger) before it.
func (e *entry) startBy() time.Duration {
	return e.job.Deadline - (e.job.Deadline-e.urgency.from)/inDanger
}

// hurry updates for each deadline whether it is in danger now, and moves the gang to its new place.
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

// Deadline describes whether a waiting gang can still meet its deadline.
type Deadline struct {
	// A gang that starts at StartBy is done in time in nine of ten cases. After LostAt it is
	// expected to be late.
	StartBy, LostAt time.Duration
	// Urgent means that the deadline is in danger, so the gang goes first among those of its
	// tenant and priority. Lost means that the deadline can probably not be met.
	Urgent, Lost bool
	// Assumed is the run time used if there is neither an estimate nor a history, and the deadline
	// has not passed. StartBy and LostAt are only as good as this assumption.
	Assumed time.Duration
}

// DeadlineOf describes whether a waiting job can meet its deadline. ok is false if it has none, or
// if [Options.Deadlines] is off.
func (q *Queue) DeadlineOf(now time.Duration, id string) (d Deadline, ok bool) {
	e := q.entries[id]
	if e == nil || e.state != waiting || e.job.Deadline == 0 || !q.opt.Deadlines {
		return d, false
	}
	u := e.urgency
	d = Deadline{StartBy: e.startBy(), LostAt: u.to, Urgent: u.from <= now && now <= u.to, Lost: now > u.to}
	if !q.knowsRunTime(e) && now <= e.job.Deadline {
		d.Assumed = e.expect
	}
	return d, true
}
