// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"math"
	"slices"
	"time"
)

// Forecasts counts the outcome of the starts that the queue foretold to gangs that
// waited, whatever they waited for.
type Forecasts struct {
	Made   int // ranges of gangs that have started
	Early  int // of them, those that started before the range
	Late   int // or after it
	Silent int // waiting gangs to which nothing was foretold
	// Width is the median length of the ranges in hours.
	WidthH float64
}

// Hit is the part of the ranges that held.
func (f Forecasts) Hit() float64 { return 1 - float64(f.Early+f.Late)/float64(f.Made) }

// forecastsAtOnce is how many waiting gangs are asked about at a time, at most.
const forecastsAtOnce = 4

// startRange is from when to when a waiting gang is expected to start.
type startRange struct{ from, to time.Duration }

// askForecasts asks the queue when waiting gangs start, once in a fixed number of decisions. It
// samples gangs from all of the queue evenly, others each time: the fractional parts of multiples
// of the golden ratio fill 0…1 evenly.
func (e *engine) askForecasts() {
	e.decisions++
	if e.ForecastEvery <= 0 || e.decisions%e.ForecastEvery != 0 {
		return
	}
	first := math.Mod(float64(e.decisions/e.ForecastEvery)*math.Phi, 1)
	var parts [forecastsAtOnce]float64 // of the queue
	for n := range parts {
		parts[n] = math.Mod(first+float64(n)/forecastsAtOnce, 1)
	}
	for _, w := range e.queue.WaitingAt(e.now, e.Cluster, parts[:]) {
		if w.To == 0 {
			e.forecasts.Silent++
			continue
		}
		j := &e.jobs[e.index[w.Job]]
		j.foretold = append(j.foretold, startRange{w.From, w.To})
	}
}

// judge compares a gang's forecast with its start.
func (e *engine) judge(j *simJob) {
	for _, r := range j.foretold {
		e.forecasts.Made++
		e.widths = append(e.widths, (r.to - r.from).Hours())
		switch {
		case e.now < r.from:
			e.forecasts.Early++
		case e.now > r.to:
			e.forecasts.Late++
		}
	}
	j.foretold = nil
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
