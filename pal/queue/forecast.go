// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// The start of a waiting gang is predicted from the waits of similar gangs. Similarity counts size,
// expected GPU time, the wait so far, and the GPUs that gangs ahead requested. Every few passes,
// one waiting gang is sampled, and how long it waits from then on is stored; until it starts, it is
// expected to wait as long again. The predicted range covers eight in ten of these waits, weighted
// by similarity.
//
// Waits differ from day to day, so these ranges alone would be wrong too often. Therefore each
// missed range widens the next ones, and each hit narrows them (adaptive conformal inference, Gibbs
// and Candès 2021). In the long run eight in ten ranges then hold, however the waits change. While
// few gangs have waited, fewer may hold.

const (
	// rangeMisses is how often a range may be wrong at either end.
	rangeMisses = 0.1
	// maxWaits is how many waits are stored. fewestWaits is how many of them must have ended in a
	// start before they are used.
	maxWaits, fewestWaits = 256, 20
	// rangeStep is how fast ranges are widened and narrowed, as a natural logarithm.
	rangeStep = 0.05
	// firstWider is the initial widening of ranges, mostWider its limit; both are natural
	// logarithms.
	firstWider, mostWider = 1.5, 3
	// Every checkEvery passes, the start of one gang is predicted, to check the prediction later.
	// maxChecks bounds the checks of one gang.
	checkEvery, maxChecks = 4, 32
	// leastRange is the shortest range, before it is widened.
	leastRange = 30 * time.Second
)

// waitFeatures are the properties by which waits are compared. Numbers are logarithms to base 2, so
// a factor of two counts the same at any size.
type waitFeatures struct {
	gpus, area   float64 // requested GPUs; expected GPU time
	ahead, since float64 // GPUs requested by gangs ahead; minutes waited so far
	again        bool    // the gang has run before
}

// prediction is a range in which a gang is predicted to start.
type prediction struct {
	waitFeatures
	at       time.Duration
	from, to time.Duration // when the gang starts, since the caller's epoch
	low      bool          // the range does not begin at once, so a start before it is possible
	known    bool          // enough waits were known to predict a range
	judged   bool          // its outcome has changed the widths of later ranges
	// The outcome is how long the gang waited after the prediction.
	started bool
	waited  time.Duration
}

// forecasts contains what the Queue has learned about waits.
type forecasts struct {
	waits []*prediction // the latest, as a ring buffer
	next  int           // index in waits of the oldest one, which is replaced next; 0 until waits is full
	// Ranges are extended by these factors, as logarithms, at the lower and the upper end.
	from, until float64
}

// alike returns the properties of a waiting gang.
func alike(now time.Duration, e *entry, ahead int) waitFeatures {
	return waitFeatures{gpus: math.Log2(float64(e.gpus)), area: math.Log2(1 + e.expect.Seconds()*float64(e.gpus)),
		ahead: math.Log2(1 + float64(ahead)), since: math.Log2(1 + (now - e.waitingSince).Minutes()), again: e.before > 0}
}

// likeness weighs a wait by how similar two gangs are. It halves when one has twice the GPUs of the
// other, twice the GPUs ahead of it, or twice the minutes waited. GPU time is only a guess, so it
// takes a factor of four to halve the weight.
func (a waitFeatures) likeness(b waitFeatures) float64 {
	d := math.Abs(a.gpus-b.gpus) + math.Abs(a.area-b.area)/2 + math.Abs(a.ahead-b.ahead) + math.Abs(a.since-b.since)
	if a.again != b.again {
		d += 2
	}
	return math.Exp2(-d)
}

// learnWait records the wait of a gang that starts now, and checks its predictions.
func (f *forecasts) learnWait(now time.Duration, e *entry) {
	for _, r := range e.predictions {
		f.judge(r, now)
		r.waited, r.started = now-r.at, true
	}
	e.predictions = nil
}

// forget drops the predictions for a gang that leaves without a start, because its full wait is
// unknown.
func (f *forecasts) forget(e *entry) {
	if len(e.predictions) == 0 {
		return
	}
	oldestFirst := slices.Concat(f.waits[f.next:], f.waits[:f.next])
	f.waits = slices.DeleteFunc(oldestFirst, func(r *prediction) bool { return slices.Contains(e.predictions, r) })
	f.next, e.predictions = 0, nil
}

// remember stores a prediction, at the place of an older one if there are already maxWaits.
func (f *forecasts) remember(r *prediction) {
	if len(f.waits) < maxWaits {
		f.waits = append(f.waits, r)
		return
	}
	f.waits[f.next] = r
	f.next = (f.next + 1) % maxWaits
}

// so returns how long the gang waited after the prediction. A gang that still waits is expected to
// wait as long again.
func (r *prediction) so(now time.Duration) time.Duration {
	if r.started {
		return r.waited
	}
	return 2 * (now - r.at)
}

// judge learns from the outcome of a range: the gang started in it or missed it. A range without a
// lower end may be missed at its upper end twice as often, so eight in ten of such ranges hold,
// too.
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

// adapt widens ranges by rangeStep × (1 - most) after a miss, and narrows them by rangeStep × most
// after a hit. Both balance when the fraction most of all ranges is missed.
func adapt(wider float64, missed bool, most float64) float64 {
	step := -rangeStep * most
	if missed {
		step = rangeStep * (1 - most)
	}
	return min(mostWider, max(-mostWider, wider+step))
}

// length is a stored wait, by its index, and its length in seconds.
type length struct {
	secs float64
	wait int
}

// byLength returns the stored waits, shortest first; none until enough of them have ended in a
// start. The order is the same for all predictions made at one time.
func (f *forecasts) byLength(now time.Duration) []length {
	ls, started := make([]length, len(f.waits)), 0
	for i, w := range f.waits {
		ls[i] = length{w.so(now).Seconds(), i}
		if w.started {
			started++
		}
	}
	if started < fewestWaits {
		return nil
	}
	slices.SortFunc(ls, func(a, b length) int { return cmp.Compare(a.secs, b.secs) })
	return ls
}

// predictStart returns the range in which a waiting gang will start, eight times in ten. ahead is
// the number of GPUs that gangs ahead request. Without waits the range is unknown. The range spans
// from one tenth to nine tenths of the weight of the stored waits, which are sorted by length, but
// begins no earlier than enough GPUs come free (see soonest), because short waits do not predict a
// jam. Then the outcomes of earlier ranges widen or narrow it at both ends.
func (f *forecasts) predictStart(now time.Duration, e *entry, ahead int, soonest time.Duration, waits []length) prediction {
	r := prediction{waitFeatures: alike(now, e, ahead), at: now}
	if len(waits) == 0 {
		return r
	}
	var weights [maxWaits]float64
	sum := 0.0
	for i, w := range f.waits {
		weights[i] = r.likeness(w.waitFeatures)
		sum += weights[i]
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

// checkForecast predicts the start of one waiting gang, to learn from the outcome. The number of
// the pass selects the gang, so the same passes make the same forecasts. The gangs come from all
// parts of the queue alike: those in front wait less than those behind.
func (p *pass) checkForecast() {
	n := len(p.ages.es) + len(p.overdue.es)
	if n == 0 || p.passes%checkEvery != 0 {
		return
	}
	// The fractional parts of multiples of the golden ratio fill 0…1 evenly, however many are
	// taken.
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

// byKey returns the waiting gangs in the order of the queue, ignoring turns of the overdue.
func (bk *book) byKey() []*entry {
	return slices.SortedFunc(bk.all(), func(a, b *entry) int { return a.key.compare(b.key) })
}

// aheadOfAll is [book.ahead] for each waiting gang.
func (bk *book) aheadOfAll() map[*entry]int {
	ahead, n := map[*entry]int{}, 0
	for _, e := range bk.byKey() {
		ahead[e] = n
		n += e.gpus
	}
	return ahead
}

// ahead returns how many GPUs the gangs before one in the queue request. It ignores turns of the
// overdue, as the stored waits do. It scans all waiting gangs, which is why checkEvery exists.
func (bk *book) ahead(e *entry) int {
	n := 0
	for _, b := range bk.live {
		n += b.ahead(e.key)
	}
	return n
}
