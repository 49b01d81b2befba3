// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"math"
	"slices"
	"time"
)

// Outcome is the result of a run.
type Outcome struct {
	Jobs        []JobResult
	Utilization float64 // share of the GPU time that gangs held, until the last finish
	Useful      float64 // work that was done and kept, at cost 1, as a share of the GPU time
	LostGPUh    float64 // GPU hours that gangs held without kept work
	Preemptions int     // runs beyond the first of each job, without changes of size; under plain Nomad, how often gangs gave up
	Resizes     int     // changes of size of running elastic gangs
	Samples     []Sample
	MakespanS   float64
	// Stuck is the number of jobs that never finish. They fit nowhere, or a limit keeps them from
	// starting. Under plain Nomad, Stuck also counts gangs that hold GPUs and wait for each
	// other.
	Stuck int
}

// Sample is the state at one time.
type Sample struct {
	AtS         float64
	BusyGPUs    int
	WaitingJobs int
}

// usage integrates and samples the number of busy GPUs.
type usage struct {
	gpus        int
	busy        int
	busyS       float64
	workS       float64 // work that was done and kept, at cost 1, in GPU seconds
	waitingJobs int
	samples     []Sample
	every       time.Duration
	nextSample  time.Duration
}

// maxSamples limits the number of samples; at the limit, every other sample is dropped.
const maxSamples = 2000

func newUsage(gpus int) usage { return usage{gpus: gpus, every: time.Minute} }

func (u *usage) wait(jobs int) { u.waitingJobs += jobs }

// hold records that a gang takes GPUs or, if gpus is negative, releases GPUs.
func (u *usage) hold(gpus int) { u.busy += gpus }

// work records work that no later restart can lose.
func (u *usage) work(gpus int, s float64) { u.workS += float64(gpus) * s }

func (u *usage) add(from, to time.Duration) {
	u.busyS += float64(u.busy) * (to - from).Seconds()
	for ; u.nextSample <= to; u.nextSample += u.every {
		u.samples = append(u.samples, Sample{u.nextSample.Seconds(), u.busy, u.waitingJobs})
		if len(u.samples) == maxSamples {
			for i := 1; i < maxSamples/2; i++ {
				u.samples[i] = u.samples[2*i]
			}
			u.samples = u.samples[:maxSamples/2]
			u.nextSample -= u.every // the last sample was dropped
			u.every *= 2
		}
	}
}

func (e *engine) outcome() Outcome {
	o := Outcome{Samples: e.use.samples}
	for i := range e.jobs { // untracked jobs that are still running
		j := &e.jobs[i]
		if j.running && !j.done {
			e.use.work(e.Jobs[i].GPUs, j.left-j.leftAfter(max(0, (e.now-j.since).Seconds())))
		}
	}
	for i := range e.jobs[:e.tracked] {
		j := &e.jobs[i]
		t := e.Jobs[i]
		r := JobResult{ID: t.ID, Class: t.Class, GPUs: t.GPUs, WorkS: t.WorkS(), Submit: t.SubmitS, Start: j.first.Seconds(),
			Finish: j.finish.Seconds(), Wait: j.waited.Seconds(), HeldS: j.ranS / float64(j.gang.GPUs()), Runs: j.runs,
			Tier: j.placement.Tier, Model: j.placement.Model}
		if j.finish < 0 {
			o.Stuck++
			r.Finish = -1
		}
		if j.first < 0 {
			r.Start, r.Wait = -1, -1
		}
		o.Jobs = append(o.Jobs, r)
		o.LostGPUh += j.lostS / 3600
		o.Preemptions += max(0, j.runs-1-j.resizes)
		o.Resizes += j.resizes
	}
	o.totals(&e.use)
	return o
}

// totals computes the figures that all engines report.
func (o *Outcome) totals(u *usage) {
	first, last := math.Inf(1), 0.0
	for _, j := range o.Jobs {
		first, last = min(first, j.Submit), max(last, j.Finish)
	}
	if last <= 0 {
		return
	}
	o.MakespanS = last - first
	o.Utilization = u.busyS / (float64(u.gpus) * last)
	o.Useful = u.workS / (float64(u.gpus) * last)
}

// Figures are the usual statistics of the tracked jobs.
type Figures struct {
	AvgJCT, GeoJCT, P50, P90, P99, MaxJCT, Makespan float64
}

// FiguresOf computes the statistics of the given jobs.
func FiguresOf(jobs []JobResult) Figures {
	var f Figures
	jcts := make([]float64, 0, len(jobs))
	first, last := math.Inf(1), 0.0
	for _, j := range jobs {
		f.AvgJCT += j.JCT()
		f.GeoJCT += math.Log(j.JCT())
		jcts = append(jcts, j.JCT())
		first, last = min(first, j.Submit), max(last, j.Finish)
	}
	if len(jobs) == 0 {
		return f
	}
	slices.Sort(jcts)
	at := func(p float64) float64 { return jcts[min(len(jcts)-1, int(p*float64(len(jcts))))] }
	f.AvgJCT /= float64(len(jobs))
	f.GeoJCT = math.Exp(f.GeoJCT / float64(len(jobs)))
	f.P50, f.P90 = at(0.5), at(0.9)
	f.P99, f.MaxJCT = at(0.99), jcts[len(jcts)-1]
	f.Makespan = last - first
	return f
}
