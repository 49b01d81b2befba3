// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Ends returns when a running gang ends: with the probability rangeHolds, between these two times
// since the caller's epoch. ok is false if the gang does not run, if it is a service, or if nothing
// predicts its end.
func (q *Queue) Ends(now time.Duration, id string) (from, to time.Duration, ok bool) {
	e := q.entries[id]
	if e == nil || e.state == waiting || e.state == starting || e.job.Endless {
		return 0, 0, false
	}
	least, most, ok := q.endRange(e, now)
	if !ok {
		return 0, 0, false
	}
	return e.endsAt(now, least), e.endsAt(now, most), true
}

// rangeHolds is the probability with which a gang ends within its predicted range.
const rangeHolds = 0.8

// endRange returns the shortest range in which a gang's remaining run time lies with the
// probability rangeHolds, at cost 1. Short ranges matter: run times spread so widely that the range
// between the first and the ninth decile would be far longer. ok is false if nothing is known about
// the run time, or if the gang has run longer than predicted.
func (fs *foresight) endRange(e *entry, now time.Duration) (least, most time.Duration, ok bool) {
	known, spread := fs.likelyRuns(e)
	done := e.work(now).Seconds()
	var left []chance
	all, rest := 0.0, 0.0
	for _, c := range smooth(known, spread) {
		all += c.weight
		if c.left > done {
			rest += c.weight
			left = append(left, chance{c.left - done, c.weight})
		}
	}
	if rest <= outlasted*all {
		return 0, 0, false
	}
	if e.job.Estimate == 0 { // long runs are underrepresented in the history, because they end last
		again := max(e.work(now), fs.unknown(e)).Seconds()
		for _, times := range []float64{0.5, 1, 2, 4} {
			left = append(left, chance{times * again, unknownRuns * all / 4})
		}
	}
	slices.SortFunc(left, func(a, b chance) int { return cmp.Compare(a.left, b.left) })
	from, to := shortestRange(left)
	return e.bounded(now, seconds(from)), e.bounded(now, seconds(to)), true
}

// The constants of endRange were chosen on generated workloads: see TestExpectedEnds in sim.
const (
	outlasted   = 0.02 // a gang has run longer than predicted if less than this part of the known run times is longer
	unknownRuns = 0.6  // weight of run times of which the history knows nothing, relative to the known ones
	firstGuess  = 0.5  // weight of each guess of how wrong a tenant's estimates are, relative to a run
	// Until there are many runs, their logarithms are assumed to have these standard deviations.
	guessedSpread    = 1.8 // of the runs of a name
	guessedWrongness = 0.7 // of ratios of run time to estimate
	narrower         = 0.7 // bandwidth of the kernel, relative to Silverman's rule
)

// likelyRuns returns the logarithms (left) of run times that the gang could have in all, in seconds
// at cost 1, and the standard deviation to assume until they are many. Without an estimate, these
// are the earlier runs of the gang's name. With one, they are the run times that follow if it is as
// wrong as its tenant's last estimates. A gang of which only the limit is known counts as if the
// limit were an estimate.
func (fs *foresight) likelyRuns(e *entry) (known []chance, spread float64) {
	runs, said := fs.samples(e.job.Name), stretched(e.job.Estimate, 1/e.job.best())
	if said == 0 && len(runs) == 0 {
		said = e.job.Limit
	}
	if said == 0 {
		for work, weight := range fs.earlierRuns(e) {
			known = append(known, chance{math.Log(work.Seconds()), weight})
		}
		return known, guessedSpread
	}
	at := math.Log(said.Seconds())
	for _, s := range fs.samples(estimatesOf(e.job.Tenant)) {
		known = append(known, chance{at + math.Log(s.work.Seconds()), 1})
	}
	return append(known, chance{at, firstGuess}, chance{at - 0.5, firstGuess}), guessedWrongness
}

// smooth replaces each logarithm of a run time by several run times around it (a kernel density).
// The fewer runs are known, and the more they differ, the wider.
func smooth(known []chance, spread float64) (out []chance) {
	var sum, mean, squares, within float64
	for _, c := range known {
		sum += c.weight
		mean += c.weight * c.left
		squares += c.weight * c.weight
	}
	mean /= sum
	for _, c := range known {
		within += c.weight * (c.left - mean) * (c.left - mean)
	}
	n := sum * sum / squares // the effective number of runs
	width := narrower * math.Sqrt((spread*spread+n*within/sum)/(1+n)) * math.Pow(n, -0.2)
	points := []float64{-1.645, -1.036, -0.674, -0.385, -0.126, 0.126, 0.385, 0.674, 1.036, 1.645} // of a normal distribution
	if len(known) > 8 {
		points = []float64{-1.15, 0, 1.15}
	}
	for _, c := range known {
		for _, z := range points {
			out = append(out, chance{math.Exp(c.left + width*z), c.weight})
		}
	}
	return out
}

// shortestRange returns the ends of the shortest range that contains the part rangeHolds of the
// chances, which must be sorted. The range can begin at 0.
func shortestRange(of []chance) (from, to float64) {
	all := 0.0
	for _, c := range of {
		all += c.weight
	}
	to = math.Inf(1)
	next, inside := 0, 0.0
	for i, c := range of {
		for ; next < len(of) && inside < rangeHolds*all; next++ {
			inside += of[next].weight
		}
		if inside < rangeHolds*all {
			break
		}
		begin := c.left
		if i == 0 {
			begin = 0
		}
		end := of[next-1].left
		if end-begin < to-from {
			from, to = begin, end
		}
		inside -= c.weight
	}
	return from, to
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
	known := q.samples(e.job.Name)
	for _, s := range known {
		longest = max(longest, s.work)
		if shortest == 0 || s.work < shortest {
			shortest = s.work
		}
	}
	return len(known), shortest, longest
}

// least returns how much longer a gang runs at least, at cost 1: nine of ten runs of its name ran
// longer in all, or in relation to the estimate nine of ten runs with estimates of its tenant. known
// is false if the gang's run time is unknown.
func (fs *foresight) least(e *entry, now time.Duration) (left time.Duration, known bool) {
	least, said := time.Duration(0), stretched(e.job.Estimate, 1/e.job.best())
	h := fs.runTimes[e.job.Name]
	errors := fs.runTimes[estimatesOf(e.job.Tenant)]
	switch {
	case said > 0 && errors != nil && len(errors.samples) >= judgedRuns:
		least = stretched(said, errors.least.Seconds())
	case said > 0:
		least = said / 2
	case h != nil:
		least = h.least
	}
	known = stretched(said, fs.stretch(e.job.Tenant)) > e.work(now) || h != nil || e.limit(now) > 0
	return e.bounded(now, max(0, least-e.work(now))), known
}
