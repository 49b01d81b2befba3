// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import "time"

// dayKey is a day, counted from 1970 in UTC, and whose it is.
type dayKey struct {
	day                           int64
	namespace, user, class, model string
}

const dayLong = 24 * time.Hour

func dayOf(t time.Time) int64 { return t.Unix() / int64(dayLong/time.Second) }

func startOf(day int64) time.Time { return time.Unix(day*int64(dayLong/time.Second), 0).UTC() }

// sums are what is added up for a day.
type sums struct {
	// gpu is GPU time, failedGPU that of allocations that failed or were lost, vain that for which
	// members held GPUs while others of their gang were not there yet, saved what packing would
	// have taken more, as predicted.
	gpu, failedGPU, vain, saved time.Duration
	// runs are those that ended on the day, waited how long they waited together.
	runs, complete, failed, stopped int64
	waited                          time.Duration
}

func (s sums) plus(o sums) sums {
	return sums{
		s.gpu + o.gpu, s.failedGPU + o.failedGPU, s.vain + o.vain, s.saved + o.saved,
		s.runs + o.runs, s.complete + o.complete, s.failed + o.failed, s.stopped + o.stopped, s.waited + o.waited,
	}
}

// addTo adds the GPU time that an allocation had between two times to its days.
func (a Alloc) addTo(days map[dayKey]sums, since, until time.Time) {
	from := later(a.From, since)
	for from.Before(until) {
		k := dayKey{dayOf(from), a.Namespace, a.User, a.Class, a.Model}
		to := startOf(k.day + 1)
		if until.Before(to) {
			to = until
		}
		s := sums{gpu: a.gpuTime(from, to)}
		if a.failed() {
			s.failedGPU = s.gpu
		}
		if a.Vain.After(from) {
			s.vain = a.gpuTime(from, earlier(a.Vain, to))
		}
		if a.Predicted > 0 && a.Packed > 0 {
			s.saved = time.Duration(float64(s.gpu) * (a.Packed/a.Predicted - 1))
		}
		days[k] = days[k].plus(s)
		from = to
	}
}

func (a Alloc) gpuTime(from, to time.Time) time.Duration {
	return to.Sub(from) * time.Duration(len(a.GPUs))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
