// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// The start of a waiting gang is predicted from the waits of similar gangs. Two gangs are similar
// if they have a similar size, expected GPU time and wait so far, and if the gangs ahead of them
// request similar numbers of GPUs. Every few passes, the Queue samples one waiting gang and stores
// how long the gang waits after that pass. The predicted range covers eight of ten stored waits,
// weighted by similarity. The wait of a gang that still waits counts as twice the wait so far.
//
// Waits differ from day to day, so ranges from stored waits alone would be wrong too often.
// Therefore each missed range widens the following ranges, and each hit narrows them (adaptive
// conformal inference, Gibbs and Candès 2021). In the long run, eight of ten ranges are right.

const (
	// rangeMisses is the fraction of ranges that may be missed at the lower end, and also the
	// fraction that may be missed at the upper end.
	rangeMisses = 0.1
	// maxWaits is the maximum number of stored waits. The stored waits are used only if there are
	// at least fewestWaits of them, and if at least fewestStarts of them have ended in a start.
	maxWaits, fewestWaits, fewestStarts = 256, 20, 3
	// rangeStep is the step by which adapt widens and narrows ranges, as a natural logarithm.
	rangeStep = 0.05
	// firstWider is the initial widening of ranges, and mostWider is its maximum. Both are natural
	// logarithms.
	firstWider, mostWider = 1.5, 3
	// In every checkEvery-th pass, the start of one gang is predicted, and the prediction is
	// checked later. The constant maxChecks is the maximum number of such predictions for one gang.
	checkEvery, maxChecks = 4, 32
	// leastRange is the shortest range, before it is widened.
	leastRange = 30 * time.Second
)

// waitFeatures are the properties by which waits are compared. Numbers are logarithms to base 2, so
// a factor of two counts the same at any size.
type waitFeatures struct {
	gpus, area   float64 // requested GPUs; expected GPU time
	ahead, since float64 // GPUs that gangs ahead request; minutes waited so far
	again        bool    // the gang has run before
}

// prediction is a range in which a gang is predicted to start.
type prediction struct {
	waitFeatures
	at       time.Duration
	from, to time.Duration // the range, since the caller's epoch
	low      bool          // the range began after at, so the gang could start before it
	known    bool          // enough waits were known to predict a range
	judged   bool          // the outcome has already changed the widths of later ranges
	// started is set when the gang starts, and waited is how long the gang waited after the
	// prediction.
	started bool
	waited  time.Duration
}

// forecasts contains what the Queue has learned about waits.
type forecasts struct {
	waits []*prediction // the latest, as a ring buffer
	next  int           // index of the oldest element of waits, which is replaced next; 0 until waits is full
	// from and until are the natural logarithms of the factors by which ranges are extended at the
	// lower and at the upper end.
	from, until float64
}

// alike returns the properties by which the wait of a gang is compared. The parameter `ahead` is
// the number of GPUs that gangs ahead request.
func alike(now time.Duration, e *entry, ahead int) waitFeatures {
	return waitFeatures{gpus: math.Log2(float64(e.gpus)), area: math.Log2(1 + e.expect.Seconds()*float64(e.gpus)),
		ahead: math.Log2(1 + float64(ahead)), since: math.Log2(1 + (now - e.waitingSince).Minutes()), again: e.before > 0}
}

// likeness returns how similar two waits are, as a weight of at most 1. The weight halves for each
// factor of two between the two numbers of GPUs, between the GPUs that gangs ahead request, or
// between the minutes waited. The weight also halves for each factor of four between the two GPU
// times.
func (a waitFeatures) likeness(b waitFeatures) float64 {
	d := math.Abs(a.gpus-b.gpus) + math.Abs(a.area-b.area)/2 + math.Abs(a.ahead-b.ahead) + math.Abs(a.since-b.since)
	if a.again != b.again {
		d += 2
	}
	return math.Exp2(-d)
}

// learnWait checks the predictions for a gang that starts now. In each prediction, learnWait
// records how long the gang waited after the prediction.
func (f *forecasts) learnWait(now time.Duration, e *entry) {
	for _, r := range e.predictions {
		f.judge(r, now)
		r.waited, r.started = now-r.at, true
	}
	e.predictions = nil
}

// forget deletes the predictions for a gang that leaves the Queue before it started, because its
// full wait is unknown.
func (f *forecasts) forget(e *entry) {
	if len(e.predictions) == 0 {
		return
	}
	oldestFirst := slices.Concat(f.waits[f.next:], f.waits[:f.next])
	f.waits = slices.DeleteFunc(oldestFirst, func(r *prediction) bool { return slices.Contains(e.predictions, r) })
	f.next, e.predictions = 0, nil
}

// remember stores a prediction. If maxWaits predictions are already stored, the new prediction
// replaces the oldest one.
func (f *forecasts) remember(r *prediction) {
	if len(f.waits) < maxWaits {
		f.waits = append(f.waits, r)
		return
	}
	f.waits[f.next] = r
	f.next = (f.next + 1) % maxWaits
}

// so returns how long the gang waited after the prediction. If the gang still waits, the result is
// twice the wait so far.
func (r *prediction) so(now time.Duration) time.Duration {
	if r.started {
		return r.waited
	}
	return 2 * (now - r.at)
}

// judge widens or narrows later ranges, depending on whether the gang started within the range. If
// a range has no lower end, twice as many misses are allowed at the upper end.
func (f *forecasts) judge(r *prediction, now time.Duration) {
	if !r.known || r.judged {
		return
	}
	r.judged = true
	most := 2 * rangeMisses
	if r.low {
		most = rangeMisses
		f.from = adapt(f.from, now < r.from, most)
	}
	f.until = adapt(f.until, now > r.to, most)
}

// adapt returns the new widening, given the old one. After a miss, adapt adds rangeStep × (1 -
// most). After a hit, adapt subtracts rangeStep × most.
func adapt(wider float64, missed bool, most float64) float64 {
	step := -rangeStep * most
	if missed {
		step = rangeStep * (1 - most)
	}
	return min(mostWider, max(-mostWider, wider+step))
}

// length contains the length of a stored wait, in seconds, and the index of this wait.
type length struct {
	secs float64
	wait int
}

// byLength returns the lengths of the stored waits, shortest first. If fewer than fewestWaits waits
// are stored, or if fewer than fewestStarts of them have ended in a start, byLength returns none.
func (f *forecasts) byLength(now time.Duration) []length {
	ls, started := make([]length, len(f.waits)), 0
	for i, w := range f.waits {
		ls[i] = length{w.so(now).Seconds(), i}
		if w.started {
			started++
		}
	}
	if len(f.waits) < fewestWaits || started < fewestStarts {
		return nil
	}
	slices.SortFunc(ls, func(a, b length) int { return cmp.Compare(a.secs, b.secs) })
	return ls
}

// predictStart returns the range in which eight of ten gangs that are similar to this waiting gang
// start. The range is unknown if `waits` is empty. `ahead` is the number of GPUs that gangs ahead
// request. The range spans from the first to the ninth decile of the other gangs' stored waits,
// weighted by likeness. The range begins no earlier than `soonest`, the time when enough GPUs
// become free. Both ends are then moved by the factors that were learned from earlier ranges.
func (f *forecasts) predictStart(now time.Duration, e *entry, ahead int, soonest time.Duration, waits []length) prediction {
	r := prediction{waitFeatures: alike(now, e, ahead), at: now}
	if len(waits) == 0 {
		return r
	}
	var weights [maxWaits]float64
	sum := 0.0
	for i, w := range f.waits {
		if !slices.Contains(e.predictions, w) { // a gang's own wait tells nothing about its end
			weights[i] = r.likeness(w.waitFeatures)
			sum += weights[i]
		}
	}
	quantile := func(part float64) float64 {
		below := 0.0
		for _, l := range waits {
			if below += weights[l.wait]; below >= part*sum {
				return l.secs
			}
		}
		return waits[len(waits)-1].secs
	}
	least := (soonest - now).Seconds()
	from := max(quantile(rangeMisses), least) * math.Exp(-f.from)
	to := max(from, max(quantile(1-rangeMisses), least, leastRange.Seconds())*math.Exp(f.until))
	r.from, r.to, r.low, r.known = now+seconds(from), now+seconds(to), from >= 1, true
	return r
}

// checkForecast predicts the start of one waiting gang in every checkEvery-th pass, to learn from
// the outcome. The number of the pass selects the gang, so that all parts of the queue are selected
// equally often.
func (p *pass) checkForecast() {
	n := len(p.ages.es) + len(p.overdue.es)
	if n == 0 || p.passes%checkEvery != 0 {
		return
	}
	// The fractional parts of the first n multiples of the golden ratio are spread evenly over 0…1,
	// for every n.
	_, part := math.Modf(float64(p.passes/checkEvery) * math.Phi)
	n = int(part * float64(n))
	for _, b := range p.live {
		if n >= len(b.es) {
			n -= len(b.es)
			continue
		}
		e := b.es[n].e
		for _, r := range e.predictions {
			if p.now > r.to {
				p.forecasts.judge(r, p.now)
			}
		}
		if len(e.predictions) < maxChecks {
			r := p.forecasts.predictStart(p.now, e, p.ahead(e), p.soonest(e), p.forecasts.byLength(p.now))
			e.predictions = append(e.predictions, &r)
			p.forecasts.remember(&r)
		}
		return
	}
}

// byKey returns the waiting gangs sorted by key. If no overdue gang has a turn, the queue has the
// same order.
func (bk *book) byKey() []*entry {
	return slices.SortedFunc(bk.all(), func(a, b *entry) int { return a.key.compare(b.key) })
}

// aheadOfAll returns [book.ahead] of each waiting gang.
func (bk *book) aheadOfAll() map[*entry]int {
	ahead, n := map[*entry]int{}, 0
	for _, e := range bk.byKey() {
		ahead[e] = n
		n += e.gpus
	}
	return ahead
}

// ahead returns the number of GPUs that the gangs ahead of e in the queue request. Turns of overdue
// gangs are ignored.
func (bk *book) ahead(e *entry) int {
	n := 0
	for _, b := range bk.live {
		n += b.ahead(e.key)
	}
	return n
}
