// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"slices"
	"sort"
	"time"
)

// A running gang can report how much of its work it has done. The gang's pace since the first
// report predicts the length of its whole run, like an estimate that gets better while the gang
// runs.
//
//   - Only the pace counts, not the first number, because a run that continues from a checkpoint
//     begins with a number above 0.
//   - The prediction does not change between two reports. So a gang that reports once per epoch
//     does not seem to become slower before its next report.
//   - The prediction is combined with estimates and earlier runs. A step is a report with a higher
//     number than the report before. After one step, the prediction has the weight one half, after
//     two steps three quarters, and so on. The weight is less if the pace changes.
//   - Reports count as wrong if the gang runs much longer than they predicted, or if it reports a
//     lower number than before. After wrong reports, the old reports are dropped, and new reports
//     count half as much. So a gang's false reports soon count for almost nothing.

// reports contains what a gang has reported about its progress.
type reports struct {
	heard bool
	// first and last are the first and the latest report. If the steps are numbered from 1, middle
	// is the latest step whose number is a power of two and at most half of the number of steps.
	// Later, next replaces middle.
	first, middle, next, last point
	steps                     int           // number of steps since the first report
	due                       time.Duration // if the gang has done more work than this, its reports were wrong; 0: unknown
	wrong                     int           // how often its reports were wrong
	// before is the work of the whole run, as predicted by the reports before the last restart. The
	// weight of that prediction is beforeSure.
	before     time.Duration
	beforeSure float64
}

// point is one report. It contains the fraction of its work that the gang claimed to have done (0
// to 1), and the work that the gang had really done by then, in time at cost 1.
type point struct {
	done float64
	work time.Duration
}

// paceTo returns the gang's pace between two reports: the fraction of its whole work that it did
// per nanosecond.
func (a point) paceTo(b point) float64 { return (b.done - a.done) / float64(b.work-a.work) }

// steady returns how steady the pace is, from 0 to 1. The result is the square of a ratio: the pace
// in the slower half of the reports divided by the pace in the faster half. The halves are the
// reports before and after `middle`.
func (r *reports) steady() float64 {
	if r.middle == r.first {
		return 1
	}
	ratio := r.first.paceTo(r.middle) / r.middle.paceTo(r.last)
	if ratio = min(ratio, 1/ratio); !(ratio > 0) { // the steps are too small for a float64
		return 0
	}
	return ratio * ratio
}

// tellsFrom is a fraction of the work that is left at the first report. Before a gang has done this
// work, its reports cannot count as wrong. During this work, the pace can be that of a start-up
// phase.
const tellsFrom = 0.1

// tells is the weight from which on reports count more than estimates and earlier runs together.
const tells = 0.5

// Progress describes what a gang has reported.
type Progress struct {
	// Done is the part of its work that the gang has done, from 0 to 1.
	Done float64
	// Steps is the number of reports of new progress since the first report, or since the reports
	// were last wrong. With 0 steps, the reports predict nothing.
	Steps int
	// Wrong is how often the gang's reports were wrong.
	Wrong int
	// Tells is set if the prediction of the gang's end depends more on the reports than on
	// estimates and earlier runs together.
	Tells bool
}

// Reported records that a running gang has done the fraction `done` of its work, from 0 to 1.
// Numbers outside this range are ignored. Reports of services, and of gangs that do not run, are
// ignored, too.
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

// NextReport returns the time until the placer asks a gang for its progress again: half a minute at
// first, later up to ten minutes.
func NextReport(ran time.Duration) time.Duration {
	return min(10*time.Minute, max(30*time.Second, ran/30))
}

// hear adds a report: the part of the work that is done, and the gang's work at that time.
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

// length returns the work of the whole run that the pace since the first report predicts.
func (r *reports) length() time.Duration {
	return r.last.work + stretched(r.last.work-r.first.work, (1-r.last.done)/(r.last.done-r.first.done))
}

// again returns the part of the reports that a gang keeps when it restarts: the prediction so far,
// and how often its reports were wrong.
func (e *entry) again(now time.Duration) reports {
	r := reports{before: e.reports.before, beforeSure: e.reports.beforeSure, wrong: e.reports.wrong}
	if length, _, sure := e.reported(e.work(now)); sure > 0 {
		r.before, r.beforeSure = length, sure
	}
	return r
}

// reported returns what a gang's reports predict after the gang has done this much work: the work
// of the whole run (length), the work that is left (left), and the weight of this prediction, from
// 0 to 1 (sure). The prediction from before the last restart is used until the reports since that
// restart have more weight. If the gang has run longer than predicted, the work that is left is
// assumed to be the work since the latest report.
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

// tells reports whether the gang's reports have any weight in the prediction of its run time.
func (e *entry) tells(now time.Duration) bool {
	_, _, sure := e.reported(e.work(now))
	return sure > 0
}

// withReports returns the distribution with the prediction of the gang's reports added.
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

// remainingByReports returns the range for [finder.remainingRange] that the gang's reports predict.
// ok is false if their weight is less than tells. The more steps, the narrower the range.
func remainingByReports(e *entry, now time.Duration) (least, most time.Duration, ok bool) {
	_, left, sure := e.reported(e.work(now))
	if sure < tells {
		return 0, 0, false
	}
	most = stretched(left, 1+1/float64(max(1, e.reports.steps)))
	return e.bounded(now, left), e.bounded(now, most), true
}

// expectAgain updates a running gang after a report. The gang's level will be computed again. The
// gang's expected end changes only if the new end differs enough.
func (q *Queue) expectAgain(now time.Duration, e *entry) {
	if e.rated {
		e.levelDue = now
		q.levels.due.fix(e)
	}
	left := max(time.Second, stretched(q.remaining(e, now), e.cost(e.placement)))
	if end := now + left; (end - e.expectedEnd).Abs() > left/looks {
		q.expectEnd(e, end)
		q.version++ // the head's expected start may have changed, and with it which gangs can be backfilled
	}
}

// ProgressOf returns what a gang has reported since its last start; ok is false if it has reported
// nothing.
func (q *Queue) ProgressOf(now time.Duration, id string) (p Progress, ok bool) {
	e := q.entries[id]
	if e == nil || !e.reports.heard {
		return Progress{}, false
	}
	_, _, sure := e.reported(e.work(now))
	return Progress{e.reports.last.done, e.reports.steps, e.reports.wrong, sure >= tells && e.reports.steps > 0}, true
}
