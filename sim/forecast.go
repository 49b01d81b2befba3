// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"math"
	"slices"
	"time"
)

// Forecasts counts how the queue's predicted starts of waiting gangs turned out.
type Forecasts struct {
	Made   int // predicted ranges of gangs that have started since
	Early  int // ranges that began after the start
	Late   int // ranges that ended before the start
	Silent int // questions to which the queue gave no range
	// WidthH is the median length of the ranges in hours.
	WidthH float64
}

// Hit is the share of the ranges that contained the start.
func (f Forecasts) Hit() float64 { return 1 - float64(f.Early+f.Late)/float64(f.Made) }

// forecastsAtOnce is the maximum number of waiting gangs to ask about at a time.
const forecastsAtOnce = 4

// startRange is the time range in which a waiting gang is expected to start.
type startRange struct{ from, to time.Duration }

// askForecasts asks the queue when waiting gangs will start, once per ForecastEvery decisions. It
// samples gangs evenly from the whole queue, different ones each time: the fractional parts of
// multiples of the golden ratio fill 0…1 evenly.
func (e *engine) askForecasts() {
	e.decisions++
	if e.ForecastEvery <= 0 || e.decisions%e.ForecastEvery != 0 {
		return
	}
	first := math.Mod(float64(e.decisions/e.ForecastEvery)*math.Phi, 1)
	var parts [forecastsAtOnce]float64 // positions in the queue, from 0 to 1
	for n := range parts {
		parts[n] = math.Mod(first+float64(n)/forecastsAtOnce, 1)
	}
	for _, w := range e.queue.WaitingAt(e.now, e.Cluster, parts[:]) {
		if w.To == 0 {
			e.forecasts.Silent++
			continue
		}
		j := &e.jobs[e.index[w.Job]]
		j.predictedStarts = append(j.predictedStarts, startRange{w.From, w.To})
	}
}

// judge compares a gang's predicted ranges with its start.
func (e *engine) judge(j *simJob) {
	for _, r := range j.predictedStarts {
		e.forecasts.Made++
		e.widths = append(e.widths, (r.to - r.from).Hours())
		switch {
		case e.now < r.from:
			e.forecasts.Early++
		case e.now > r.to:
			e.forecasts.Late++
		}
	}
	j.predictedStarts = nil
}

// forecast is the outcome of all forecasts.
func (e *engine) forecast() Forecasts {
	f := e.forecasts
	if n := len(e.widths); n > 0 {
		slices.Sort(e.widths)
		f.WidthH = e.widths[n/2]
	}
	return f
}
