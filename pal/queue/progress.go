// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"slices"
	"sort"
	"time"
)

// A running gang may report how much of its work it has done. Its pace since the first report
// predicts the length of its whole run, like an estimate that gets better while the gang runs:
//
//   - Only the pace counts, not the first number: a run that goes on from a checkpoint begins at
//     more than 0.
//   - The prediction stays the same between two reports. A gang that reports once per epoch does
//     not look slower in between.
//   - The prediction is weighed against other knowledge. Its weight is one half after one step,
//     three quarters after two, and less if the pace changes.
//   - A gang that outlasts its reports by far, or takes a step back, was wrong. Its reports start
//     over, and from then on count half as much. So false reports soon count for nothing.

// reports are what a gang has reported.
type reports struct {
	heard bool
	// first and last are its first and latest report. middle lies between them: the latest whose
	// number is a power of two and at most half of last's. next will replace middle.
	first, middle, next, last point
	steps                     int           // since the first report
	due                       time.Duration // work after which the reports are proved wrong if it still runs; 0: unknown
	wrong                     int           // how often its reports were wrong
	// before is the work of the whole run as predicted by reports before the last restart;
	// beforeSure is the weight of that prediction.
	before     time.Duration
	beforeSure float64
}

// point is a report: the part of the work that is done, and the work at cost 1 that it took.
type point struct {
	done float64
	work time.Duration
}

// paceTo returns the gang's speed between two reports, as a part of its work per nanosecond.
func (a point) paceTo(b point) float64 { return (b.done - a.done) / float64(b.work-a.work) }

// steady rates how steady the pace is, from 0 to 1: the ratio of the slower to the faster half of
// the reports, squared.
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

// tellsFrom is the part of the work after the first report that a gang must do before its reports
// can be proved wrong. Until then its pace may be that of a start-up phase.
const tellsFrom = 0.1

// tells is the least weight at which reports outweigh all other knowledge.
const tells = 0.5

// Progress is what a gang has reported.
type Progress struct {
	// Done is the part of its work that it has done.
	Done float64
	// Steps counts reports since the first one, or since the reports were last wrong. With 0, they
	// predict nothing.
	Steps int
	// Wrong is how often its reports were wrong.
	Wrong int
	// Tells is set if the reports outweigh all other knowledge of the gang's end.
	Tells bool
}

// Reported records that a running gang has done the part done of its work, from 0 to 1. It ignores
// other numbers, and reports of gangs that do not run or never end.
func (q *Queue) Reported(now time.Duration, id string, done float64) {
	e := q.entries[id]
	if e == nil || e.state < running || e.job.Endless || !(done >= 0 && done <= 1) {
		return
	}
	before, told := e.reports, e.tells(now)
	e.reports.hear(done, e.work(now))
	if e.reports != before && (told || e.tells(now)) && e.state == running {
		q.expectAgain(now, e)
	}
}

// NextReport returns when to ask a gang for its progress again, given how long it has run: often
// right after its start, when little is known, and a few times an hour later.
func NextReport(ran time.Duration) time.Duration {
	return min(10*time.Minute, max(30*time.Second, ran/30))
}

// hear adds a report.
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

// length returns the work of the whole run, predicted from the pace since the first report.
func (r *reports) length() time.Duration {
	return r.last.work + stretched(r.last.work-r.first.work, (1-r.last.done)/(r.last.done-r.first.done))
}

// again returns the part of the reports that is still valid after a restart of the gang.
func (e *entry) again(now time.Duration) reports {
	r := reports{before: e.reports.before, beforeSure: e.reports.beforeSure, wrong: e.reports.wrong}
	if length, _, sure := e.reported(e.work(now)); sure > 0 {
		r.before, r.beforeSure = length, sure
	}
	return r
}

// reported combines all reports of a gang that has done this work. It returns the work of the whole
// run, the work that is left, and the weight of this prediction, from 0 to 1. Reports of earlier
// runs count until those of this run weigh more. A late gang is expected to run on for as long as
// it has reported nothing new.
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

// tells reports whether the gang's reports predict its run time.
func (e *entry) tells(now time.Duration) bool {
	_, _, sure := e.reported(e.work(now))
	return sure > 0
}

// withReports adds the gang's reports to the distribution.
func (o remainingRunTime) withReports(e *entry, done time.Duration) remainingRunTime {
	_, d, sure := e.reported(done)
	if sure <= 0 {
		return o
	}
	left, sum := d.Seconds(), o.weight()
	for i := range o.of {
		o.of[i].weight *= (1 - sure) / sum
	}
	o.rest *= (1 - sure) / sum
	i := sort.Search(len(o.of), func(i int) bool { return o.of[i].left >= left })
	o.of = slices.Insert(o.of, i, chance{left, sure})
	return o
}

// remainingByReports is [finder.remainingRange] from the gang's reports, if they outweigh all other
// knowledge. The range narrows with the number of reports.
func remainingByReports(e *entry, now time.Duration) (least, most time.Duration, ok bool) {
	_, left, sure := e.reported(e.work(now))
	if sure < tells {
		return 0, 0, false
	}
	most = stretched(left, 1+1/float64(max(1, e.reports.steps)))
	return e.bounded(now, left), e.bounded(now, most), true
}

// expectAgain updates a running gang after a report: its level, and its expected end if that
// changed noticeably.
func (q *Queue) expectAgain(now time.Duration, e *entry) {
	if e.rated {
		e.levelDue = now
		q.levels.due.fix(e)
	}
	left := max(time.Second, stretched(q.remaining(e, now), e.cost(e.placement)))
	if end := now + left; (end - e.expectedEnd).Abs() > left/looks {
		q.expectEnd(e, end)
		q.version++ // backfilling gangs may now end in time for the head, or no longer do
	}
}

// ProgressOf returns what a gang has reported since it started; ok is false if that is nothing.
func (q *Queue) ProgressOf(now time.Duration, id string) (p Progress, ok bool) {
	e := q.entries[id]
	if e == nil || !e.reports.heard {
		return Progress{}, false
	}
	_, _, sure := e.reported(e.work(now))
	return Progress{e.reports.last.done, e.reports.steps, e.reports.wrong, sure >= tells && e.reports.steps > 0}, true
}
