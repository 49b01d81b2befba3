// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"slices"
	"sort"
	"time"
)

// A running gang may report how much of its work it has done. Its pace since its first report tells
// how long its whole run is, like an estimate that gets better while the gang runs:
//
//   - Only the pace counts. A run that goes on from a checkpoint begins at more than 0.
//   - The estimate holds from one report to the next: a gang that reports once an epoch runs on
//     between two reports.
//   - It counts beside what is known otherwise: half after one step, three quarters after two, and
//     less if the pace changes.
//   - A gang that outlasts its own reports by far, or takes a step back, was wrong. Then it begins to
//     report anew, and what it reports counts half as much from then on. So false reports soon
//     tell as much as none.

// reports are what a gang has reported.
type reports struct {
	heard bool
	// Its first report, its last step, and, after several, one between them: the latest whose number is a power of
	// two and at most half of theirs. next is to become that.
	first, middle, next, last point
	steps                     int           // since the first report
	due                       time.Duration // the work by which it must have ended, as it reports; 0: nothing says so
	wrong                     int           // how often it was
	// Of the runs before this one: how long the whole run is, and how much that counts.
	before     time.Duration
	beforeSure float64
}

// point is a report: the part that is done, and the work that it took.
type point struct {
	done float64
	work time.Duration
}

// paceTo is how fast the gang went from one point to a later one, as a part of all by nanosecond.
func (a point) paceTo(b point) float64 { return (b.done - a.done) / float64(b.work-a.work) }

// steady is how steady its pace is, from 0 to 1: the ratio of the slower to the faster half of its reports, squared.
func (r *reports) steady() float64 {
	if r.middle == r.first {
		return 1
	}
	ratio := r.first.paceTo(r.middle) / r.middle.paceTo(r.last)
	if ratio = min(ratio, 1/ratio); !(ratio > 0) { // steps that are too small for a float64
		return 0
	}
	return ratio * ratio
}

// tellsFrom is the part of what was left at its first report that a gang must have done before its
// reports can be wrong: the pace of the first steps may be that of a start.
const tellsFrom = 0.1

// tells is how much reports count at least that tell more than all else.
const tells = 0.5

// Progress is what a gang has reported.
type Progress struct {
	// Done is the part of its work that it has done.
	Done float64
	// Steps are those since its first report, or since it was last wrong: without one, nothing follows from it.
	Steps int
	// Wrong is how often its reports were.
	Wrong int
	// Tells: they tell when the gang ends, more than all else.
	Tells bool
}

// Reported tells that a running gang reports that it has done such a part of its work, from 0 to 1.
// Other numbers, and reports of gangs that do not run or that never end, tell nothing.
func (q *Queue) Reported(now time.Duration, id string, done float64) {
	e := q.entries[id]
	if e == nil || e.state < running || e.job.Endless || !(done >= 0 && done <= 1) {
		return
	}
	before, told := e.reports, e.tells(now)
	e.reports.hear(done, e.work(now))
	if e.reports != before && (told || e.tells(now)) && e.state == running {
		q.expectAnew(now, e)
	}
}

// NextReport is when a gang that has run for so long is asked for its progress again: often while it has
// just started, as little is known of it, and a few times an hour later.
func NextReport(ran time.Duration) time.Duration {
	return min(10*time.Minute, max(30*time.Second, ran/30))
}

// hear adds a report of a gang that has done that much work.
func (r *reports) hear(done float64, work time.Duration) {
	is := point{done, work}
	switch late := r.due > 0 && work > r.due; {
	case !r.heard:
		r.heard, r.first, r.middle, r.next, r.last = true, is, is, is, is
	case done < r.last.done || late:
		*r = reports{heard: true, first: is, middle: is, next: is, last: is, wrong: r.wrong + 1}
	case done > r.last.done && work > r.last.work:
		r.last, r.steps = is, r.steps+1
		if r.steps&(r.steps-1) == 0 {
			r.middle, r.next = r.next, is
		}
		if done-r.first.done >= tellsFrom*(1-r.first.done) {
			if due := stretched(r.length(), 1+beyond); r.due == 0 || due < r.due {
				r.due = due
			}
		}
	}
}

// length is how much work the whole run is, by its pace since the first report.
func (r *reports) length() time.Duration {
	return r.last.work + stretched(r.last.work-r.first.work, (1-r.last.done)/(r.last.done-r.first.done))
}

// again is what is left of the reports when the gang starts again.
func (e *entry) again(now time.Duration) reports {
	r := reports{before: e.reports.before, beforeSure: e.reports.beforeSure, wrong: e.reports.wrong}
	if length, _, sure := e.reported(e.work(now)); sure > 0 {
		r.before, r.beforeSure = length, sure
	}
	return r
}

// reported is how much work the whole run is by all reports of a gang that has done so much, how much it has yet to
// do, and how much that counts, from 0 to 1. That of runs before this one counts until this one tells more. A
// gang that is late runs on for as long as it has reported nothing new.
func (e *entry) reported(done time.Duration) (length, left time.Duration, sure float64) {
	r := &e.reports
	sure = (1 - math.Exp2(-float64(r.steps))) * math.Exp2(-float64(r.wrong)) * r.steady()
	if sure > r.beforeSure {
		length = r.length()
		left = max(length-done, done-r.last.work)
	} else {
		length, sure = r.before, r.beforeSure
		left = max(length-done, 0)
	}
	possible, _ := outlasting(length, done)
	return length, left, sure * possible
}

// tells reports whether the gang's reports tell how long it runs.
func (e *entry) tells(now time.Duration) bool {
	_, _, sure := e.reported(e.work(now))
	return sure > 0
}

// withReports puts what the gang reports beside what is known otherwise.
func (o outlook) withReports(e *entry, done time.Duration) outlook {
	_, d, sure := e.reported(done)
	if sure <= 0 {
		return o
	}
	left, sum := d.Seconds(), o.rest
	for _, c := range o.of {
		sum += c.weight
	}
	for i := range o.of {
		o.of[i].weight *= (1 - sure) / sum
	}
	o.rest *= (1 - sure) / sum
	i := sort.Search(len(o.of), func(i int) bool { return o.of[i].left >= left })
	o.of = slices.Insert(o.of, i, chance{left, sure})
	return o
}

// foretellByReports is [finder.foretell] by what the gang reports, if that counts more than all else: the more
// often it has, the closer.
func foretellByReports(e *entry, now time.Duration) (least, most time.Duration, ok bool) {
	_, left, sure := e.reported(e.work(now))
	if sure < tells {
		return 0, 0, false
	}
	most = stretched(left, 1+1/float64(max(1, e.reports.steps)))
	return e.bounded(now, left), e.bounded(now, most), true
}

// expectAnew updates what follows from new knowledge of a running gang: when it is expected to
// end, unless that differs little, and its level.
func (q *Queue) expectAnew(now time.Duration, e *entry) {
	if e.rated {
		e.levelDue = now
		q.levels.due.fix(e)
	}
	left := max(time.Second, stretched(q.remaining(e, now), e.cost(e.placement)))
	if end := now + left; (end - e.expectedEnd).Abs() > left/looks {
		q.expectEnd(e, end)
		q.version++ // who waits may end before what is reserved comes free, or not
	}
}

// ProgressOf is what a gang has reported since it started; ok is false if it has reported nothing.
func (q *Queue) ProgressOf(now time.Duration, id string) (p Progress, ok bool) {
	e := q.entries[id]
	if e == nil || !e.reports.heard {
		return Progress{}, false
	}
	_, _, sure := e.reported(e.work(now))
	return Progress{e.reports.last.done, e.reports.steps, e.reports.wrong, sure >= tells && e.reports.steps > 0}, true
}
