// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"math"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim"
)

// forecasts asks the queue when waiting gangs will start, and counts how many of the queue's
// predictions were right.
type forecasts struct {
	every     int // number of decisions from one question to the next
	decisions int
	predicted map[string][]startRange // of waiting gangs, by job

	made, missed int       // number of ranges of gangs that have started since; number of ranges that did not contain the start
	widths       []float64 // lengths of the ranges, in hours
}

// startRange is the time range in which a waiting gang is expected to start.
type startRange struct{ from, to time.Duration }

// forecastsAtOnce is the maximum number of waiting gangs to ask about at a time.
const forecastsAtOnce = 4

// forecastsOf makes a run of the simulator ask for forecasts, and compare the forecasts with the
// starts.
func forecastsOf(c *sim.Config) *forecasts {
	f := &forecasts{every: forecastEvery(len(c.Jobs)), predicted: map[string][]startRange{}}
	cluster, jobs := c.Cluster, c.Jobs
	c.Decided = func(now time.Duration, q *queue.Queue) { f.ask(now, q, cluster) }
	c.Observe = func(now time.Duration, job int, kind string, _ pal.Placement) {
		if kind == "start" || kind == "resume" {
			f.judge(now, jobs[job].ID)
		}
	}
	return f
}

// forecastEvery is the number of decisions from one request for forecasts to the next. On a long
// trace, forecastEvery is a hundredth of the number of jobs, because predictions would otherwise
// take longer than the decisions.
func forecastEvery(jobs int) int {
	if jobs <= 2500 {
		return 5
	}
	return jobs / 100
}

// ask samples gangs evenly from the whole queue, each time different gangs, by the fractional parts
// of multiples of the golden ratio, which fill 0…1 evenly.
func (f *forecasts) ask(now time.Duration, q *queue.Queue, c *pal.Cluster) {
	f.decisions++
	if f.decisions%f.every != 0 {
		return
	}
	first := math.Mod(float64(f.decisions/f.every)*math.Phi, 1)
	var parts [forecastsAtOnce]float64 // positions in the queue, from 0 to 1
	for n := range parts {
		parts[n] = math.Mod(first+float64(n)/forecastsAtOnce, 1)
	}
	for _, w := range q.WaitingAt(now, c, parts[:]) {
		if w.To != 0 { // otherwise the queue gives no range
			f.predicted[w.Job] = append(f.predicted[w.Job], startRange{w.From, w.To})
		}
	}
}

// judge compares a gang's predicted ranges with its start.
func (f *forecasts) judge(now time.Duration, job string) {
	for _, r := range f.predicted[job] {
		f.made++
		f.widths = append(f.widths, (r.to - r.from).Hours())
		if now < r.from || now > r.to {
			f.missed++
		}
	}
	delete(f.predicted, job)
}

// hit is the share of the ranges that contained the start.
func (f *forecasts) hit() float64 { return 1 - float64(f.missed)/float64(f.made) }

// width is the median length of the ranges, in hours.
func (f *forecasts) width() float64 {
	slices.Sort(f.widths)
	return f.widths[len(f.widths)/2]
}
