// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// When a waiting gang will start is told by the waits of gangs like it: in size, in
// expected GPU time, in how long they had waited already and in the GPUs that those
// ahead of them asked for. In every few passes one waiting gang is looked at, and how
// long it waits on is remembered; while it does, it is taken to wait as long again.
// Eight in ten of those waits, weighed by likeness, lie in the range that is told.
//
// Waits are not alike from day to day, so that alone would be wrong too often. What
// became of earlier ranges widens and narrows the next ones (adaptive conformal
// inference, Gibbs and Candès 2021), which keeps the rate in the long run, however
// the waits change. It is not kept where few gangs have waited.

const (
	// rangeMisses is how often a range may be wrong at either end.
	rangeMisses = 0.1
	// maxWaits are the waits that are remembered, fewestWaits how many it takes to tell
	// anything.
	maxWaits, fewestWaits = 256, 20
	// rangeStep is how fast ranges are widened and narrowed, as a natural logarithm.
	rangeStep = 0.05
	// firstWider is by how much they are wider at first, mostWider at most; logarithms
	// too.
	firstWider, mostWider = 1.5, 3
	// checkEvery is in how many passes the start of one gang is foretold to see
	// what becomes of it, maxChecks how often that of the same gang.
	checkEvery, maxChecks = 4, 32
	// leastRange is how long a range is at least, before it is widened.
	leastRange = 30 * time.Second
)

// waitFeatures are the properties by which waits are compared. Numbers are logarithms to
// base 2, so that twice as much is as different at any size.
type waitFeatures struct {
	gpus, area   float64 // what it asks for, and for how long
	ahead, since float64 // GPUs that those ahead of it ask for; minutes that it waits
	again        bool    // it ran before
}

// prediction is a range in which a gang was said to start.
type prediction struct {
	waitFeatures
	at       time.Duration
	from, to time.Duration // when the gang starts, since the caller's epoch
	low      bool          // it does not begin at once: it can be missed at its lower end
	known    bool          // enough was known
	judged   bool
	// What became of it: how long the gang waited on.
	started bool
	waited  time.Duration
}

// forecasts is what the Queue has learned of waiting.
type forecasts struct {
	waits []*prediction // the last
	next  int           // of them to be replaced
	// Logarithms by which ranges begin sooner and end later than the waits say.
	from, until float64
}

// alike are the properties of a waiting gang.
func alike(now time.Duration, e *entry, ahead int) waitFeatures {
	return waitFeatures{gpus: math.Log2(float64(e.gpus)), area: math.Log2(1 + e.expect.Seconds()*float64(e.gpus)),
		ahead: math.Log2(1 + float64(ahead)), since: math.Log2(1 + (now - e.waitingSince).Minutes()), again: e.before > 0}
}

// likeness weighs a wait by how alike the gangs are: it halves where one has twice the
// GPUs, the GPUs ahead of it or the minutes waited of the other, or four times the GPU
// time, which is only a guess.
func (a waitFeatures) likeness(b waitFeatures) float64 {
	d := math.Abs(a.gpus-b.gpus) + math.Abs(a.area-b.area)/2 + math.Abs(a.ahead-b.ahead) + math.Abs(a.since-b.since)
	if a.again != b.again {
		d += 2
	}
	return math.Exp2(-d)
}

// learnWait remembers how long a gang has waited that starts now, and what became
// of what was foretold of it.
func (f *forecasts) learnWait(now time.Duration, e *entry) {
	for _, r := range e.foretold {
		f.judge(r, now)
		r.waited, r.started = now-r.at, true
	}
	e.foretold = nil
}

// forget drops what was foretold of a gang that is gone without a start: how long it
// would have waited nobody knows.
func (f *forecasts) forget(e *entry) {
	for _, r := range e.foretold {
		f.waits = slices.DeleteFunc(f.waits, func(o *prediction) bool { return o == r })
	}
	f.next = 0
	e.foretold = nil
}

// remember keeps a range until maxWaits others came.
func (f *forecasts) remember(r *prediction) {
	if len(f.waits) < maxWaits {
		f.waits = append(f.waits, r)
		return
	}
	f.next %= maxWaits
	f.waits[f.next] = r
	f.next++
}

// so is how long the gang waited on, or, while it does, is taken to wait: as long
// again.
func (r *prediction) so(now time.Duration) time.Duration {
	if r.started {
		return r.waited
	}
	return 2 * (now - r.at)
}

// judge learns from what became of a range: the gang started, or did not in time. A range
// that can only be missed at its upper end may be so twice as often: eight in ten hold.
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

// adapt widens ranges after one that was missed, by rangeStep × (1 - most), and narrows
// them after one that held, by rangeStep × most: that balances when the part most of them
// is missed.
func adapt(wider float64, missed bool, most float64) float64 {
	step := -rangeStep * most
	if missed {
		step = rangeStep * (1 - most)
	}
	return min(mostWider, max(-mostWider, wider+step))
}

// length is how long a remembered wait, by its number, was or is taken to be, in seconds.
type length struct {
	secs float64
	wait int
}

// byLength are the remembered waits by how long they are, the shortest first. That is the
// same for all gangs whose starts are foretold at one time.
func (f *forecasts) byLength(now time.Duration) []length {
	ls := make([]length, len(f.waits))
	for i, w := range f.waits {
		ls[i] = length{w.so(now).Seconds(), i}
	}
	slices.SortFunc(ls, func(a, b length) int { return cmp.Compare(a.secs, b.secs) })
	return ls
}

// foretellStart is between when a waiting gang will start, eight times in ten, where
// those ahead of it ask for so many GPUs. It is not known before a few gangs have
// waited. Of the waits that are remembered, which are given by length, the range lies
// between those at one tenth and nine tenths of their weight, widened by what earlier
// ranges have taught.
func (f *forecasts) foretellStart(now time.Duration, e *entry, ahead int, waits []length) prediction {
	r := prediction{waitFeatures: alike(now, e, ahead), at: now}
	if len(waits) < fewestWaits {
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
	from := quantile(rangeMisses) * math.Exp(-f.from)
	to := max(from, max(quantile(1-rangeMisses), leastRange.Seconds())*math.Exp(f.until))
	r.from, r.to, r.low, r.known = now+seconds(from), now+seconds(to), from >= 1, true
	return r
}

// checkForecast foretells the start of a waiting gang to see what becomes of it. Which one,
// the number of the pass says, so that the same passes make the same forecasts; they come
// from all of the queue alike: gangs in front wait less than those behind.
func (p *pass) checkForecast() {
	if p.passes%checkEvery != 0 {
		return
	}
	n := 0
	for _, b := range p.live {
		n += len(b.es)
	}
	if n == 0 {
		return
	}
	// Multiples of the golden ratio, without what is before the point, fill 0…1 evenly, however
	// many are taken.
	_, part := math.Modf(float64(p.passes/checkEvery) * math.Phi)
	n = int(part * float64(n))
	for _, b := range p.live {
		if n >= len(b.es) {
			n -= len(b.es)
			continue
		}
		e := b.es[n].e
		for _, r := range e.foretold {
			if p.now > r.to {
				p.forecasts.judge(r, p.now)
			}
		}
		if len(e.foretold) < maxChecks {
			r := p.forecasts.foretellStart(p.now, e, p.ahead(e), p.forecasts.byLength(p.now))
			e.foretold = append(e.foretold, &r)
			p.forecasts.remember(&r)
		}
		return
	}
}

// byKey are the gangs that wait, by the order, not by the turns of those overdue.
func (bk *book) byKey() []*entry {
	var es []*entry
	for _, b := range bk.live {
		for i := range b.es {
			es = append(es, b.es[i].e)
		}
	}
	slices.SortFunc(es, func(a, b *entry) int { return a.key.compare(b.key) })
	return es
}

// aheadOfAll is [book.ahead] of each gang that waits.
func (bk *book) aheadOfAll() map[*entry]int {
	ahead, n := map[*entry]int{}, 0
	for _, e := range bk.byKey() {
		ahead[e] = n
		n += e.gpus
	}
	return ahead
}

// ahead is how many GPUs the gangs ask for that go before one in the queue: by the order, not
// by the turns of those overdue, or what is asked would not be what was learned. It looks at
// all that wait, hence checkEvery.
func (bk *book) ahead(e *entry) int {
	n := 0
	for _, b := range bk.live {
		n += b.ahead(e.key)
	}
	return n
}
