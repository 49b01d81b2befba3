// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package plot

import "math"

// Axis describes an axis.
type Axis struct {
	Label string
	Log   bool // logarithmic, base 10; only positive values are shown
	// Ticks are the values to label; empty means round values.
	Ticks []float64
}

// scale maps values to a length.
type scale struct {
	axis     Axis
	min, max float64 // values at the ends
	ticks    []float64
}

// newScale makes a scale for the values that the axis can show; linear scales start at 0 if no
// value is negative.
func newScale(a Axis, values []float64) scale {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if a.shows(v) {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	if lo > hi {
		lo, hi = 1, 10
	}
	s := scale{axis: a}
	if a.Log {
		s.min, s.max, s.ticks = logTicks(lo, hi)
	} else {
		s.min, s.max, s.ticks = linearTicks(min(lo, 0), hi)
	}
	if len(a.Ticks) > 0 {
		s.ticks = a.Ticks
	}
	return s
}

func (a Axis) shows(v float64) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (!a.Log || v > 0)
}

// at returns the position of a value between the ends of the scale, from 0 to 1.
func (s scale) at(v float64) float64 {
	lo, hi := s.min, s.max
	if s.axis.Log {
		lo, hi, v = math.Log(lo), math.Log(hi), math.Log(v)
	}
	return min(1, max(0, (v-lo)/(hi-lo)))
}

// linearTicks returns at most eight multiples of 1, 2 or 5 times a power of ten; the results
// `first` and `last` enclose `lo` and `hi`.
func linearTicks(lo, hi float64) (first, last float64, ticks []float64) {
	if hi <= lo {
		hi = lo + 1
	}
	// If ticks were closer than the precision of numbers, the loop would not end.
	hi = max(hi, lo+1e-6*max(math.Abs(lo), math.Abs(hi)))
	least := (hi - lo) / 6.25
	power := math.Pow(10, math.Floor(math.Log10(least)))
	step := 10 * power
	for _, m := range []float64{5, 2} {
		if m*power >= least {
			step = m * power
		}
	}
	from, to := math.Floor(lo/step+1e-9), math.Ceil(hi/step-1e-9)
	for k := range int(to-from) + 1 {
		ticks = append(ticks, (from+float64(k))*step)
	}
	return from * step, to * step, ticks
}

// logTicks returns powers of ten and, if they are few, also 2 and 5 times these powers. The first
// and the last tick are the ends of the axis.
func logTicks(lo, hi float64) (first, last float64, ticks []float64) {
	within := []float64{1}
	if math.Log10(hi/lo) < 2.5 {
		within = []float64{1, 2, 5}
	}
	var all []float64
	for e := math.Floor(math.Log10(lo)) - 1; e <= math.Ceil(math.Log10(hi))+1; e++ {
		for _, m := range within {
			all = append(all, m*math.Pow(10, e))
		}
	}
	for i, v := range all {
		if v <= lo*(1+1e-9) {
			ticks = ticks[:0]
			first = v
		}
		ticks = append(ticks, v)
		if v >= hi*(1-1e-9) && i > 0 && v > first {
			return first, v, ticks
		}
	}
	return first, all[len(all)-1], ticks
}
