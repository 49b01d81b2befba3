// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"math"

	"github.com/nomad-pal/nomad-pal/pal"
)

// fair simulates Gavel's policy of finish-time fairness as a fluid. Whenever a job arrives or ends,
// the policy divides all GPUs again. The policy minimizes the greatest ratio of a job's finish time
// to its finish time if it had 1/n of the GPUs of each model, where n is the number of jobs. The
// policy knows run times, shares GPUs in any fractions, and stops and moves jobs at no cost. All
// jobs with equal speeds count as one kind.
//
// We wrote the solver ourselves; it handles three models. To reach a ratio, the jobs need certain
// rates. By the duality of linear programming, these rates are impossible only if there are prices
// of the models at which the rates cost more than all GPUs together. The prices of three models are points of
// a triangle, and each try excludes a part of the triangle.
type fair struct {
	jobs []job
	c    crowd
	gpus float64 // of each model
	now  float64
	live []*sharing
}

// sharing is a job that has arrived but has not ended.
type sharing struct {
	*job
	kind     int
	left     float64 // seconds of work on the fastest model
	isolated float64 // time so far that the job would have waited and run in isolation, with 1/n of each model
	rate     float64
}

// crowd has, for the jobs of each kind, the speeds by model and the demand.
type crowd struct {
	speeds [][3]float64
	gpus   []float64 // GPUs that the jobs request
	rates  []float64 // rates that the jobs require, in GPUs of the fastest model
}

// finishTimeFairness is the average completion time under finish-time fairness, for three models
// only.
func finishTimeFairness(jobs []job, models []string, gpus float64) (float64, error) {
	if len(models) != 3 {
		return 0, fmt.Errorf("finish-time fairness is solved for three models, not %d", len(models))
	}
	f := &fair{jobs: jobs, gpus: gpus}
	kinds, at := make([]int, len(jobs)), map[[3]float64]int{}
	for i := range jobs {
		s := speedsOn(jobs[i].speeds, models)
		k, ok := at[s]
		if !ok {
			k = len(f.c.speeds)
			at[s] = k
			f.c.speeds = append(f.c.speeds, s)
		}
		kinds[i] = k
	}
	f.c.gpus, f.c.rates = make([]float64, len(at)), make([]float64, len(at))
	sum := 0.0
	for next := 0; next < len(jobs) || len(f.live) > 0; {
		until := math.Inf(1)
		if next < len(jobs) {
			until = jobs[next].SubmitS
		}
		sum += f.advance(until)
		for ; next < len(jobs) && jobs[next].SubmitS <= f.now; next++ {
			f.live = append(f.live, &sharing{job: &jobs[next], kind: kinds[next], left: jobs[next].WorkS()})
		}
		f.share()
	}
	return sum / float64(len(jobs)), nil
}

func speedsOn(s pal.Speeds, models []string) (on [3]float64) {
	for m, model := range models {
		on[m] = s[deviceName(model)]
	}
	return on
}

// advance runs the jobs until one ends, or until the given time, and returns the sum of the
// completion times of the jobs that end.
func (f *fair) advance(until float64) (ended float64) {
	for _, s := range f.live {
		if s.rate > 0 {
			until = min(until, f.now+s.left/s.rate)
		}
	}
	took, live := until-f.now, f.live[:0]
	for _, s := range f.live {
		s.isolated += took
		if s.left -= took * s.rate; s.left > 1e-6 {
			live = append(live, s)
		} else {
			ended += until - s.SubmitS
		}
	}
	f.live, f.now = live, until
	return ended
}

// share sets the rate of each job.
func (f *fair) share() {
	low, high := 0.0, 1.0
	for !f.possible(high) {
		low, high = high, 2*high
	}
	for high-low > 1e-4*high {
		if middle := (low + high) / 2; f.possible(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	f.possible(high)
}

// possible sets the rates that the ratio requires, and reports whether each job can finish within
// this ratio of its finish time in isolation.
func (f *fair) possible(ratio float64) bool {
	clear(f.c.gpus)
	clear(f.c.rates)
	for _, s := range f.live {
		alone := s.left / f.alone(s)
		s.rate = 1
		if time := ratio*(s.isolated+alone) - (f.now - s.SubmitS); time > s.left {
			s.rate = s.left / time
		}
		f.c.gpus[s.kind] += float64(s.GPUs)
		f.c.rates[s.kind] += float64(s.GPUs) * s.rate
	}
	return f.c.fits(f.gpus)
}

// alone is the rate of a job in isolation, with 1/n of each model.
func (f *fair) alone(s *sharing) (rate float64) {
	share := f.gpus / float64(len(f.live)) / float64(s.GPUs)
	share = min(share, 1/float64(len(f.c.speeds[s.kind])))
	for _, speed := range f.c.speeds[s.kind] {
		rate += share * speed
	}
	return rate
}

// fits reports whether this number of GPUs of each of three models gives all kinds their rates. The
// rates do not fit if there are prices at which all GPUs together cost 1, but the cheapest mix for
// the rates costs more. The prices at which all GPUs cost 1 form a triangle. Each try computes the
// cheapest mix at the centre, and cuts off the prices at which this mix costs no more than 1.
func (c crowd) fits(gpus float64) bool {
	part := [][3]float64{{1 / gpus, 0, 0}, {0, 1 / gpus, 0}, {0, 0, 1 / gpus}}
	for range 60 {
		var at [3]float64
		for _, corner := range part {
			for m := range at {
				at[m] += corner[m] / float64(len(part))
			}
		}
		used := c.cheapest(at)
		if worth(used, at) > 1+1e-9 {
			return false
		}
		if part = cut(part, used); len(part) == 0 {
			return true
		}
	}
	return true
}

func worth(gpus, prices [3]float64) float64 {
	return gpus[0]*prices[0] + gpus[1]*prices[1] + gpus[2]*prices[2]
}

// cut returns the part of a convex polygon of prices in which these GPUs cost more than 1.
func cut(polygon [][3]float64, gpus [3]float64) (part [][3]float64) {
	for i, a := range polygon {
		b := polygon[(i+1)%len(polygon)]
		at, bt := worth(gpus, a)-1-1e-9, worth(gpus, b)-1-1e-9
		if at > 0 {
			part = append(part, a)
		}
		if at > 0 != (bt > 0) {
			var edge [3]float64
			for m := range edge {
				edge[m] = a[m] + (b[m]-a[m])*at/(at-bt)
			}
			part = append(part, edge)
		}
	}
	return part
}

// cheapest is the cheapest mix of GPUs of each model that gives all kinds their rates.
func (c crowd) cheapest(prices [3]float64) (used [3]float64) {
	for k, rate := range c.rates {
		if rate > 0 {
			for m, n := range cheapestMix(c.speeds[k], c.gpus[k], rate, prices) {
				used[m] += n
			}
		}
	}
	return used
}

// cheapestMix is the cheapest mix for a rate with at most this number of GPUs. The mix has GPUs of
// one model, or of a slow and a fast model.
func cheapestMix(speeds [3]float64, gpus, rate float64, prices [3]float64) (mix [3]float64) {
	least := math.Inf(1)
	for a, slow := range speeds {
		if slow*gpus >= rate*(1-1e-12) {
			if n := rate / slow; n*prices[a] < least {
				least, mix = n*prices[a], [3]float64{}
				mix[a] = n
			}
			continue
		}
		for b, fast := range speeds { // model a alone is too slow, so use all GPUs, some of them of a faster model
			if fast*gpus < rate*(1-1e-12) {
				continue
			}
			n := (rate - slow*gpus) / (fast - slow)
			if cost := n*prices[b] + (gpus-n)*prices[a]; cost < least {
				least, mix = cost, [3]float64{}
				mix[a], mix[b] = gpus-n, n
			}
		}
	}
	return mix
}
