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
// wait for if its user had given this estimate. It returns nil if the gang does not wait. To
// compute the answers, WaitsIf puts the gang into the queue with each estimate, and at the end with
// its original estimate. It forgets since when the gang has declined GPUs (see offeredFrom), so ask
// a clone.
func (q *Queue) WaitsIf(now time.Duration, c *pal.Cluster, id string, estimates ...time.Duration) (ws []Wait) {
	e := q.entries[id]
	if e == nil || e.state != waiting || len(estimates) == 0 {
		return nil
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
	first := asking(q, now, c)
	for _, d := range estimates {
		say(d)
		p := asking(q, now, c)
		p.rooms, p.found = first.rooms, first.found // where gangs fit does not depend on estimates, so share the caches
		ws = append(ws, p.waitOf(e))
	}
	return ws
}

// RemainingQuantiles returns, for each part between 0 and 1, the quantile of the predicted
// remaining run time of a gang, at cost 1. It returns nil for an unknown gang.
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

// Takes returns a range that contains a gang's remaining run time, on GPUs of this cost, in eight
// of ten cases. The more the runs of a name differ, the wider the range. Takes returns 0, 0 if the
// gang has neither an estimate nor an earlier run.
func Takes(q *Queue, now time.Duration, id string, cost float64) (from, to time.Duration) {
	e := q.entries[id]
	if e == nil || !q.knowsRunTime(e) {
		return 0, 0
	}
	o := q.remainingRunTime(e, now)
	return stretched(o.quantile(rangeMisses), cost/(1+beyond)), stretched(o.quantile(1-rangeMisses), cost*(1+beyond))
}

// TurnAfter returns the total wait after which a job is overdue, and so can get a turn.
func (fs *foresight) TurnAfter(j Job) time.Duration { return fs.patience(j) }
