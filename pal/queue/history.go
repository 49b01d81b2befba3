// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"slices"
	"time"
)

// maxSamples bounds what is remembered of a name, the oldest goes first; and
// maxNames the names, where that goes first which taught nothing for longest.
const (
	maxSamples = 64
	maxNames   = 200
)

// beyond is by how much of its time a run may be longer than another one of its
// name, or than its user's estimate, before that tells nothing of it any more.
const beyond = 0.4

// sample is one finished run: its work at cost 1 and how many GPUs it had.
type sample struct {
	work time.Duration
	gpus int
}

// past is what is remembered of a name.
type past struct {
	samples []sample // oldest first
	last    int64    // number of the lesson that came last
}

// learn remembers a finished run.
func (l *Line) learn(name string, s sample) {
	if name == "" || s.work <= 0 {
		return
	}
	l.lessons++
	h := l.history[name]
	if h == nil {
		l.makeRoom()
		h = &past{}
		l.history[name] = h
	}
	h.last = l.lessons
	h.samples = append(h.samples, s)
	if len(h.samples) > maxSamples {
		h.samples = slices.Delete(h.samples, 0, 1)
	}
	l.learned[name] = struct{}{}
}

// makeRoom forgets a name where there are as many as may be.
func (l *Line) makeRoom() {
	if len(l.history) < maxNames {
		return
	}
	oldest := ""
	for name, h := range l.history {
		if oldest == "" || h.last < l.history[oldest].last {
			oldest = name
		}
	}
	delete(l.history, oldest)
	l.learned[oldest] = struct{}{}
}

// Past is what is remembered of the runs of a name, to be kept while there is
// no Line.
type Past struct {
	Name string `json:"name"`
	// Last grows with each lesson of the Line: names with the smallest are
	// forgotten first.
	Last int64 `json:"last"`
	// Runs are the finished ones, oldest first: work at cost 1 in nanoseconds, and
	// GPUs.
	Runs [][2]int64 `json:"runs"`
}

// History is all that is remembered, by name.
func (l *Line) History() []Past {
	out := make([]Past, 0, len(l.history))
	for name, h := range l.history {
		p := Past{Name: name, Last: h.last, Runs: make([][2]int64, len(h.samples))}
		for i, s := range h.samples {
			p.Runs[i] = [2]int64{int64(s.work), int64(s.gpus)}
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Past) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Lessons counts the runs taken in: the history is as it was while it stays.
func (l *Line) Lessons() int64 { return l.lessons }

// Remember replaces what is remembered by what an earlier Line knew. Runs that
// make no sense are left out.
func (l *Line) Remember(history []Past) {
	for name := range l.history {
		l.learned[name] = struct{}{}
	}
	l.history, l.lessons = map[string]*past{}, 0
	history = slices.Clone(history)
	slices.SortFunc(history, func(a, b Past) int { return cmp.Compare(b.Last, a.Last) })
	for _, p := range history[:min(len(history), maxNames)] {
		h := &past{last: p.Last}
		for _, r := range p.Runs[max(0, len(p.Runs)-maxSamples):] {
			if r[0] > 0 && r[1] > 0 {
				h.samples = append(h.samples, sample{time.Duration(r[0]), int(r[1])})
			}
		}
		if p.Name != "" && len(h.samples) > 0 {
			l.history[p.Name], l.lessons = h, max(l.lessons, p.Last)
			l.learned[p.Name] = struct{}{}
		}
	}
}

// remaining is how long a gang is expected to run on, at cost 1: by its user's
// estimate, by the history of its name, or as long as it ran already; until its
// limit at most, which is what is expected where there is neither.
func (l *Line) remaining(e *entry, now time.Duration) time.Duration {
	if left := e.limit(now); left > 0 && e.job.Estimate == 0 && len(l.samples(e.job.Name)) == 0 {
		return left
	}
	return e.bounded(now, l.expected(e, now))
}

// bounded is a time that the gang may run on, its limit where that is shorter.
func (e *entry) bounded(now, d time.Duration) time.Duration {
	if left := e.limit(now); left > 0 {
		return min(left, d)
	}
	return d // no limit, or it is being ended
}

// limit is how long the gang may run on at most, at cost 1; 0 or less where
// nothing says so, or it should have ended. Each run has the whole limit.
func (e *entry) limit(now time.Duration) time.Duration {
	if e.state == waiting || e.state == starting {
		return e.job.Limit
	}
	return time.Duration(float64(e.job.Limit-max(0, now-e.startedAt)) / e.placement.Cost())
}

// expected is [Line.remaining] without a limit. What is not known of a gang that
// outlasts all that is known is that it runs as long again.
func (l *Line) expected(e *entry, now time.Duration) time.Duration {
	done := e.work(now)
	again := max(done, l.opt.FirstGuess).Seconds()
	var weight, sum float64
	if e.job.Estimate > 0 {
		p, left := outlasting(e.job.Estimate, done)
		weight, sum = 1, p*left+(1-p)*again
	} else {
		// What is not known counts as much as one run of the same size.
		weight, sum = 1, again
		for _, s := range l.samples(e.job.Name) {
			p, left := outlasting(s.work, done)
			w := p * likeness(s.gpus, e.gpus)
			weight += w
			sum += w * left
		}
	}
	return time.Duration(sum / weight * float64(time.Second))
}

// outlasting is how far a run of a known length still says something of one that
// has done so much, from 1 down to 0, and how many seconds are left by it. Runs of
// a name are never quite as long as each other: one that is about to end must not
// look as if it had only begun.
func outlasting(length, done time.Duration) (possible, left float64) {
	over := float64(done-length) / (beyond * float64(length))
	return 1 - min(1, max(0, over)), max(0, length-done).Seconds()
}

func (l *Line) samples(name string) []sample {
	if h := l.history[name]; h != nil {
		return h.samples
	}
	return nil
}

// likeness weighs a run by how near its size is: 1 for the same, a quarter
// where one is twice the other.
func likeness(a, b int) float64 {
	if a > b {
		a, b = b, a
	}
	r := float64(a) / float64(b)
	return r * r
}
