// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"math"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// summary summarizes a series of window times.
type summary struct {
	Median float64
	Sigma  float64 // robust standard deviation, relative to the median
	// CI is the half width of the 95 % confidence interval of the median, relative to the median.
	// With fewer than three windows, CI is +Inf.
	CI float64
}

// summarize summarizes the times of windows in the order of measurement. Consecutive windows are
// correlated, so they count for less than independent windows.
func summarize(times []float64) summary {
	s := summary{Median: profile.Median(times), CI: math.Inf(1)}
	if len(times) < 3 {
		return s
	}
	s.Sigma = profile.RobustSigma(times, s.Median) / s.Median
	rho := math.Max(0, math.Min(0.95, autocorrelation(times, s.Median)))
	n := float64(len(times)) * (1 - rho) / (1 + rho)
	// The standard error of a median is 1.2533 times the standard error of a mean.
	s.CI = 1.96 * 1.2533 * s.Sigma / math.Sqrt(math.Max(1, n))
	return s
}

// autocorrelation returns the correlation of neighbouring values around the center; 0 for
// constant values.
func autocorrelation(xs []float64, center float64) float64 {
	var num, den float64
	for i, x := range xs {
		den += (x - center) * (x - center)
		if i > 0 {
			num += (x - center) * (xs[i-1] - center)
		}
	}
	if den == 0 {
		return 0
	}
	return num / den
}

// steady reports whether the medians of the two halves of the values differ by at most the relative
// bound.
func steady(xs []float64, bound float64) bool {
	h := len(xs) / 2
	if h == 0 {
		return false
	}
	a, b := profile.Median(xs[:h]), profile.Median(xs[h:])
	return math.Abs(b-a) <= bound*math.Abs(a)
}

// The temperature settles later than the clocks, because a cold heat sink takes one to two minutes
// to warm up.
//
// warmRise is the rise of the temperature during the plan's Heat, in °C, up to which a GPU is warm.
// NVML reports whole degrees.
const warmRise = 1

// warm reports whether the temperature has settled in the last p.Heat. A falling temperature counts
// as settled, because a fan may have caught up. An unknown temperature is ignored.
func (p Plan) warm(now time.Time, rs []reading) bool {
	var recent []reading
	known := false
	for _, r := range rs {
		if r.tempC == nil {
			continue
		}
		known = true
		if now.Sub(r.at) <= p.Heat {
			recent = append(recent, r)
		}
	}
	if !known || len(recent) == 0 {
		return !known
	}
	first, last := recent[0], recent[len(recent)-1]
	return last.at.Sub(first.at) >= p.Heat-2*telemetryPeriod && *last.tempC-*first.tempC <= warmRise
}
