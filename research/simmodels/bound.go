// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"container/heap"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize/convex/lp"

	"github.com/nomad-pal/nomad-pal/pal"
)

// kind stands for all jobs of a workload that have the same speeds.
type kind struct {
	speeds pal.Speeds
	work   float64 // GPU seconds on the fastest model
}

// fluid solves the linear program of Gavel's maximum-throughput policy: all work is available at
// once and divided among the models in any fractions, to end as soon as possible. The results are
// the time until all work has ended, and the prices of the program. A price is the value of a
// second on a GPU of one model. The prices of one GPU of each model add up to 1.
//
// fluid solves the dual, where p are the prices, and y is the least price of a unit of work of each
// kind. It maximizes Σ work·y with y ≤ p/speed on each model, and with Σ p = 1, because the models
// have equally many GPUs.
func fluid(kinds []kind, models []string, gpus float64) (span float64, prices map[string]float64, err error) {
	n := len(models) + len(kinds)
	type limit struct{ model, kind int }
	var limits []limit
	for k := range kinds {
		for m, model := range models {
			if kinds[k].speeds[deviceName(model)] > 0 {
				limits = append(limits, limit{m, k})
			}
		}
	}
	c, a, b := make([]float64, n+len(limits)), mat.NewDense(len(limits)+1, n+len(limits), nil), make([]float64, len(limits)+1)
	total := 0.0
	for _, k := range kinds {
		total += k.work
	}
	for k := range kinds {
		c[len(models)+k] = -kinds[k].work / total
	}
	for i, l := range limits { // speed·y − p + slack = 0
		a.Set(i, len(models)+l.kind, kinds[l.kind].speeds[deviceName(models[l.model])])
		a.Set(i, l.model, -1)
		a.Set(i, n+i, 1)
	}
	for m := range models {
		a.Set(len(limits), m, 1)
	}
	b[len(limits)] = 1
	least, x, err := lp.Simplex(c, a, b, 1e-12, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("solving for most throughput: %w", err)
	}
	span = -least * total / gpus
	prices = map[string]float64{}
	for m, model := range models {
		prices[deviceName(model)] = x[m]
	}
	return span, prices, nil
}

// bound is a lower bound on the average completion time of every policy: the greatest of three
// bounds. First, each job takes at least its run time on its fastest model. Second, at the given
// prices, a job costs at least GPUs × work × the least price over speed, and all GPUs together
// serve costs at a fixed rate. So no policy beats one machine that serves these costs, one job at a
// time, the least remaining cost first. Third, a job ends at least half of its run time on the
// fastest model after the mean of the times at which it is served. The average of these means is
// lowest if the machine serves the job with the least total cost first.
func bound(jobs []job, models []string, gpusOfModel float64, prices map[string]float64) float64 {
	costs, least := make([]float64, len(jobs)), 0.0
	for i, j := range jobs {
		price := math.Inf(1)
		for _, model := range models {
			if s := j.speeds[deviceName(model)]; s > 0 {
				price = min(price, prices[deviceName(model)]/s)
			}
		}
		costs[i] = float64(j.GPUs) * j.WorkS() * price / gpusOfModel
		least += j.WorkS()
	}
	ends, _ := oneMachine(jobs, costs, true)
	_, middles := oneMachine(jobs, costs, false)
	n := float64(len(jobs))
	return max(least, ends, middles+least/2) / n
}

// oneMachine serves costs on one machine, at a rate of 1 per second: the least remaining cost first
// if left is set, otherwise the least cost first. oneMachine returns two sums over the jobs: of the
// time from submission to the end, and of the time from submission to the mean time at which the
// machine worked on the job.
func oneMachine(jobs []job, costs []float64, left bool) (ends, middles float64) {
	h := &rest{}
	now := 0.0
	for i := 0; i < len(jobs) || h.Len() > 0; {
		if h.Len() == 0 {
			now = max(now, jobs[i].SubmitS)
		}
		for ; i < len(jobs) && jobs[i].SubmitS <= now; i++ {
			heap.Push(h, part{i, costs[i], costs[i]})
		}
		p := &(*h)[0]
		until := now + p.left
		if i < len(jobs) {
			until = min(until, jobs[i].SubmitS)
		}
		done := until - now
		if costs[p.job] > 0 {
			middles += done / costs[p.job] * ((now+until)/2 - jobs[p.job].SubmitS)
		}
		p.left -= done
		if left {
			p.key = p.left
		}
		if now = until; p.left <= 1e-9 {
			ends += now - jobs[p.job].SubmitS
			heap.Pop(h)
		} else {
			heap.Fix(h, 0)
		}
	}
	return ends, middles
}

// part is the remaining part of a job.
type part struct {
	job       int
	left, key float64
}

// rest is a heap of parts by key.
type rest []part

func (r rest) Len() int           { return len(r) }
func (r rest) Less(i, j int) bool { return r[i].key < r[j].key }
func (r rest) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *rest) Push(a any)        { *r = append(*r, a.(part)) }
func (r *rest) Pop() any {
	p := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return p
}
