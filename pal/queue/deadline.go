// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"time"
)

// A gang with a deadline keeps its place in the order until the deadline is in danger. Once the
// deadline is in danger, the gang goes before the other gangs of its tenant and priority, but after
// overdue gangs whose turn it is. Among several gangs whose deadlines are in danger, the gang that
// must start first goes first. When its deadline can no longer be met, a gang loses this advantage,
// because going first would only make others late.

// inDanger decides when a deadline comes into danger: at inDanger × the gang's run time before the
// deadline. With the factor 2, a gang can wait for as long as it will run, and still end in time.
// The run time used is one that nine of ten similar gangs do not exceed.
const inDanger = 2

// urgency is the span of time in which a waiting gang's deadline is in danger. Before `from`, there
// is enough time. After `to`, the deadline can no longer be met. hurry sets `on` to true during the
// span.
type urgency struct {
	on       bool
	from, to time.Duration
}

// urgencyRank is so low that urgencyRank plus any time in seconds comes before all ranks of an
// order.
const urgencyRank = -1e12

// expectUrgency sets the span in which the gang's deadline is in danger, from the gang's expected
// run time.
func (fs *foresight) expectUrgency(e *entry) {
	if e.job.Deadline == 0 || !fs.opt.Deadlines {
		return
	}
	long := fs.longest(e, e.waitingSince)
	e.urgency.from = e.job.Deadline - inDanger*long
	e.urgency.to = e.job.Deadline - min(long, e.expect)
}

// urgentKey returns the gang's key k. If the gang's deadline is in danger, the key gets a new rank,
// which puts the gang first among the gangs of its priority.
func (e *entry) urgentKey(k key) key {
	if e.urgency.on {
		k.rank = urgencyRank + e.startBy().Seconds()
	}
	return k
}

// startBy returns the latest start at which nine of ten similar gangs meet the deadline: one run
// time (see inDanger) before the deadline.
func (e *entry) startBy() time.Duration {
	return e.job.Deadline - (e.job.Deadline-e.urgency.from)/inDanger
}

// hurry updates for each waiting gang whether its deadline is in danger now. Gangs for which this
// has changed move to their new places in the queue.
func (q *Queue) hurry(now time.Duration) {
	for _, e := range q.dated {
		if on := e.urgency.from <= now && now <= e.urgency.to; on != e.urgency.on {
			e.urgency.on = on
			e.key = q.keyOf(e)
			e.bucket.fix(e)
		}
	}
}

// nextUrgency calls `soon` with the times at which deadlines come into danger, and with the times
// from which deadlines can no longer be met.
func (bk *book) nextUrgency(soon func(time.Duration)) {
	for _, e := range bk.dated {
		soon(e.urgency.from)
		soon(e.urgency.to + 1)
	}
}

// Deadline describes whether a waiting gang can still meet its deadline.
type Deadline struct {
	// Of ten gangs that start at StartBy, nine end in time. A gang that starts after LostAt is
	// expected to be late.
	StartBy, LostAt time.Duration
	// Urgent means that the deadline is in danger, so the gang goes first among the gangs of its
	// tenant and priority. Lost means that the deadline can probably not be met.
	Urgent, Lost bool
	// Assumed is the run time that was assumed because there is neither an estimate nor a history.
	// If this assumption is wrong, StartBy and LostAt are wrong as well. Assumed is 0 if the
	// deadline has passed.
	Assumed time.Duration
}

// DeadlineOf returns whether a waiting job can still meet its deadline. ok is false if the job does
// not wait or has no deadline, or if [Options.Deadlines] is off.
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
