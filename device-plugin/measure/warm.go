// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import "time"

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
