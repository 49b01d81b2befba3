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
// to warm up. NVML reports whole degrees, so a slow rise is invisible within ten seconds. Therefore
// the slope of the temperature is taken over a minute.
//
// warmSlope is the rise, in °C per second, below which a GPU is warm.
const warmSlope = 0.02

// point is a value at a time.
type point struct {
	at time.Time
	v  float64
}

// slope returns the slope of the least-squares line through the points, in units per second. span
// is the time between the first and the last point.
func slope(ps []point) (perSecond float64, span time.Duration) {
	if len(ps) < 2 {
		return 0, 0
	}
	from, span := ps[0].at, ps[len(ps)-1].at.Sub(ps[0].at)
	var t, v float64
	for _, p := range ps {
		t, v = t+p.at.Sub(from).Seconds(), v+p.v
	}
	n := float64(len(ps))
	t, v = t/n, v/n
	var tv, tt float64
	for _, p := range ps {
		d := p.at.Sub(from).Seconds() - t
		tv, tt = tv+d*(p.v-v), tt+d*d
	}
	if tt == 0 {
		return 0, span
	}
	return tv / tt, span
}

// warm reports whether the temperature has settled in the last p.Heat. A falling temperature counts
// as settled, because a fan may have caught up. An unknown temperature is ignored.
func (p Plan) warm(now time.Time, rs []reading) bool {
	var temps []point
	known := false
	for _, r := range rs {
		if r.tempC == nil {
			continue
		}
		known = true
		if now.Sub(r.at) <= p.Heat {
			temps = append(temps, point{r.at, *r.tempC})
		}
	}
	if !known {
		return true
	}
	s, span := slope(temps)
	return span >= p.Heat-2*telemetryPeriod && s < warmSlope
}
