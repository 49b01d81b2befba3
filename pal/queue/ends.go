// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"slices"
	"time"
)

// Ends returns the range of times in which a running gang is expected to end, since the caller's
// epoch (see [finder.remainingRange]). ok is false in three cases: the gang does not run, its run
// time can only be guessed, or it is a service.
func (q *Queue) Ends(now time.Duration, id string) (from, to time.Duration, ok bool) {
	e := q.entries[id]
	if e == nil || e.state == waiting || e.state == starting || e.job.Endless {
		return 0, 0, false
	}
	p := q.at(now, nil)
	least, most, ok := p.remainingRange(e)
	if !ok {
		return 0, 0, false
	}
	return e.endsAt(now, least), e.endsAt(now, most), true
}

// endsAt returns when a running gang ends if it has this much work left, in time at cost 1.
func (e *entry) endsAt(now, work time.Duration) time.Duration {
	return now + stretched(e.bounded(now, work), e.cost(e.placement))
}

// EarlierRuns returns the number of known earlier runs of a job's name, and the shortest and the
// longest of their run times, at cost 1. For a job with an estimate, EarlierRuns returns zeros,
// because [Queue.Ends] does not use the earlier runs of such a job.
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

// remainingRange returns the range in which a gang's remaining run time is expected to lie, at cost
// 1. ok is false if the range is only a guess. The range comes from the first of these sources that
// is known:
//
//   - The gang's own reports.
//   - The user's estimate. The range extends from the expected time to twice this time.
//   - Earlier runs of the gang's name. The range extends from the first to the ninth decile of
//     these runs. Its upper end is then multiplied by 1 + 1/n, where n is the number of runs.
//
// If no source is known, the range extends from the expected time to twice this time.
func (p *finder) remainingRange(e *entry) (least, most time.Duration, ok bool) {
	if least, most, ok = remainingByReports(e, p.now); ok {
		return least, most, true
	}
	left := p.remaining(e, p.now)
	ok = p.Estimate(e.job) > e.work(p.now) || e.limit(p.now) > 0 || len(p.samples(e.job.Name)) > 0
	if e.job.Estimate > 0 {
		return left, stretched(left, 2), ok
	}
	runs := slices.DeleteFunc(p.remainingRunTime(e, p.now).of, func(c chance) bool { return c.weight <= 0 })
	if len(runs) == 0 {
		return left, stretched(left, 2), ok
	}
	least = e.bounded(p.now, seconds(quantile(runs, 0.1)))
	most = stretched(seconds(quantile(runs, 0.9)), 1+1/float64(len(runs)))
	return least, e.bounded(p.now, most), ok
}

// quantile returns a remaining time, in seconds. The true remaining time is at most this long with
// the probability `part`. The chances must be sorted, the shortest time first.
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
