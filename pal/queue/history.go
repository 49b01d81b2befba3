// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"slices"
	"time"
)

// maxSamples bounds what is remembered of a name; the oldest goes first.
const maxSamples = 64

// firstGuess is what a gang of an unknown name is expected to run when it
// starts. It only matters against gangs of known names.
const firstGuess = 10 * time.Minute

// sample is one finished run: its work at cost 1 and how many GPUs it had.
type sample struct {
	work time.Duration
	gpus int
}

// learn remembers a finished run.
func (l *Line) learn(name string, s sample) {
	if name == "" || s.work <= 0 {
		return
	}
	h := append(l.history[name], s)
	if len(h) > maxSamples {
		h = slices.Delete(h, 0, 1)
	}
	l.history[name] = h
	l.learned[name] = struct{}{}
}

// remaining is how long a gang is expected to run on, at cost 1: by its user's
// estimate, by the history of its name, or as long as it ran already.
func (l *Line) remaining(e *entry, now time.Duration) time.Duration {
	done := e.work(now)
	if e.job.Estimate > 0 && done < e.job.Estimate {
		return e.job.Estimate - done
	}
	lindy := max(done, firstGuess)
	if e.job.Estimate > 0 {
		return lindy
	}
	var weight, sum float64
	for _, s := range l.history[e.job.Name] {
		if s.work > done {
			w := likeness(s.gpus, e.gpus)
			weight += w
			sum += w * (s.work - done).Seconds()
		}
	}
	// What is not known counts as much as one run of the same size.
	mean := (sum + lindy.Seconds()) / (weight + 1)
	return time.Duration(mean * float64(time.Second))
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
