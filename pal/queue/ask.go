// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Told reports whether the Queue knows anything about the job's run time: an estimate of its user,
// a limit, or earlier runs of its name.
func (fs *foresight) Told(j Job) bool {
	return j.Estimate > 0 || j.Limit > 0 || len(fs.samples(j.Name)) > 0
}

// WaitsIf returns one [Wait] for each of the given run time estimates: what the waiting gang would
// wait for if its user had given this estimate. If the gang does not wait, WaitsIf returns nil.
func (q *Queue) WaitsIf(now time.Duration, c *pal.Cluster, id string, estimates ...time.Duration) (ws []Wait) {
	first := asking(q, now, c)
	ifTold(q, id, estimates, func(e *entry) {
		p := asking(q, now, c)
		p.rooms, p.found = first.rooms, first.found // where gangs fit does not depend on estimates, so share the caches
		ws = append(ws, p.waitOf(e))
	})
	return ws
}

// Starts reports whether Decide would start job j now, and on which GPUs, if j replaced the gang
// that has the same ID. `since` is the time when j's wait began. Starts leaves the queue unchanged.
func (q *Queue) Starts(now time.Duration, c *pal.Cluster, j Job, since time.Duration) (at pal.Placement, ok bool) {
	o := q.Clone()
	if o.Removed(now, j.ID); o.Submit(since, j) != nil {
		return at, false
	}
	for _, a := range o.Decide(now, c) {
		if a.Kind == Start && a.Job == j.ID {
			return a.Placement, true
		}
	}
	return at, false
}

// ifTold calls `ask` once for each estimate. During the call, the waiting gang has this estimate,
// and the place in the queue that follows from it. Afterwards the gang has its original estimate
// again.
func ifTold(q *Queue, id string, estimates []time.Duration, ask func(e *entry)) {
	e := q.entries[id]
	if e == nil || e.state != waiting || len(estimates) == 0 {
		return
	}
	was, settled := e.job.Estimate, e.settled
	say := func(d time.Duration) {
		q.dequeue(e)
		e.job.Estimate = d
		q.enqueue(e)
	}
	defer func() {
		say(was)
		e.settled = settled
	}()
	for _, d := range estimates {
		say(d)
		ask(e)
	}
}

// RemainingQuantiles predicts how long a gang will still run at cost 1, as quantiles. The elements
// of `parts` are probabilities between 0 and 1. For an unknown gang, RemainingQuantiles returns
// nil.
func (q *Queue) RemainingQuantiles(now time.Duration, id string, parts ...float64) []time.Duration {
	e := q.entries[id]
	if e == nil {
		return nil
	}
	o, out := q.remainingRunTime(e, now), make([]time.Duration, len(parts))
	for i, part := range parts {
		out[i] = o.quantile(part)
	}
	return out
}

// TurnAfter returns the total wait after which a job is overdue, and so can get a turn.
func (fs *foresight) TurnAfter(j Job) time.Duration { return fs.patience(j) }
