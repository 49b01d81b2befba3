// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Told reports whether the run time of the job can be estimated: by its user, its limit or earlier
// runs of its name.
func (fs *foresight) Told(j Job) bool {
	return j.Estimate > 0 || j.Limit > 0 || len(fs.samples(j.Name)) > 0
}

// WaitsIf answers "what if": it returns what a waiting gang would wait for under each of the given
// run time estimates. It returns nothing for a gang that does not wait. The queue stays as it was.
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
		p.rooms, p.found = first.rooms, first.found // the room on the cluster does not depend on estimates
		ws = append(ws, p.waitOf(e))
	}
	return ws
}

// RemainingQuantiles returns quantiles of how much longer a gang is expected to run, at cost 1.
func (q *Queue) RemainingQuantiles(now time.Duration, id string, parts ...float64) []time.Duration {
	e := q.entries[id]
	if e == nil {
		return nil
	}
	o, out := q.outlook(e, now), make([]time.Duration, len(parts))
	for i, part := range parts {
		out[i] = o.quantile(part)
	}
	return out
}

// Takes returns the range in which a gang's run time lies eight times in ten, at cost 1. The more
// the runs of a name differ, the wider the range. Takes returns 0 if there is neither an estimate
// nor an earlier run.
func Takes(q *Queue, now time.Duration, id string) (from, to time.Duration) {
	e := q.entries[id]
	if e == nil || !q.told(e) {
		return 0, 0
	}
	o := q.outlook(e, now)
	return stretched(o.quantile(rangeMisses), 1/(1+beyond)), stretched(o.quantile(1-rangeMisses), 1+beyond)
}

// TurnAfter returns the total wait after which a gang of this job is overdue.
func (fs *foresight) TurnAfter(j Job) time.Duration { return fs.patience(j) }
