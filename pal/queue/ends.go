// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"slices"
	"time"
)

// Ends foretells between when a running gang ends, both since the caller's epoch: see
// [finder.foretell]. ok is false for a gang that does not run, and for one whose end can only be
// guessed: nothing is known of its run time, or it is a service.
func (q *Queue) Ends(now time.Duration, id string) (from, to time.Duration, ok bool) {
	e := q.entries[id]
	if e == nil || e.state == waiting || e.state == starting || e.job.Endless {
		return 0, 0, false
	}
	p := q.at(now, nil)
	least, most, ok := p.foretell(e)
	if !ok {
		return 0, 0, false
	}
	cost := e.cost(e.placement)
	at := func(work time.Duration) time.Duration {
		return now + stretched(e.bounded(now, work), cost)
	}
	return at(least), at(most), true
}

// EarlierRuns says what is known of earlier runs of a job's name, at cost 1. It is what
// [Queue.Ends] rests on where the job has no estimate.
func (q *Queue) EarlierRuns(id string) (runs int, shortest, longest time.Duration) {
	e := q.entries[id]
	if e == nil || e.job.Estimate > 0 {
		return 0, 0, 0
	}
	known := q.sortedSamples(e.job.Name)
	if len(known) == 0 {
		return 0, 0, 0
	}
	return len(known), known[0].work, known[len(known)-1].work
}

// foretell is between how long a gang runs on at cost 1; ok is false where that is only a
// guess. What the gang reports comes first. Where earlier runs of its name tell, it is from the tenth part of them to nine
// tenths; the fewer they are, the longer it may be: twice as long after one, a tenth longer
// after ten. Else it is what is expected, to twice that.
func (p *finder) foretell(e *entry) (least, most time.Duration, ok bool) {
	if least, most, ok = foretellByReports(e, p.now); ok {
		return least, most, true
	}
	left := p.remaining(e, p.now)
	ok = p.Estimate(e.job) > e.work(p.now) || e.limit(p.now) > 0 || len(p.samples(e.job.Name)) > 0
	if e.job.Estimate > 0 {
		return left, stretched(left, 2), ok
	}
	runs := slices.DeleteFunc(p.outlook(e, p.now).of, func(c chance) bool { return c.weight <= 0 })
	if len(runs) == 0 {
		return left, stretched(left, 2), ok
	}
	least = e.bounded(p.now, seconds(quantile(runs, 0.1)))
	most = stretched(seconds(quantile(runs, 0.9)), 1+1/float64(len(runs)))
	return least, e.bounded(p.now, most), ok
}

// quantile is how long such a part of the chances, shortest first, runs on at most, in seconds.
func quantile(of []chance, part float64) float64 {
	all := 0.0
	for _, c := range of {
		all += c.weight
	}
	for _, c := range of {
		if part -= c.weight / all; part <= 0 {
			return c.left
		}
	}
	return of[len(of)-1].left
}
