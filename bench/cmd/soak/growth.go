// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"math"
)

// A series grows steadily if its regression line rises by more than growthShare of its mean, and by
// more than growthErrors standard errors of the slope. A series of fewer than growthLooks values
// proves nothing.
const (
	growthShare  = 0.15
	growthErrors = 4.0
	growthLooks  = 10
)

// growth returns the rise of the regression line through equally spaced values, from the first to
// the last, and the same rise in standard errors of the slope.
func growth(ys []float64) (rise, errors float64) {
	n := float64(len(ys))
	if n < 3 {
		return 0, 0
	}
	mx, my := (n-1)/2, 0.0
	for _, y := range ys {
		my += y / n
	}
	var sxx, sxy float64
	for i, y := range ys {
		d := float64(i) - mx
		sxx += d * d
		sxy += d * (y - my)
	}
	slope := sxy / sxx
	var rest float64
	for i, y := range ys {
		e := y - my - slope*(float64(i)-mx)
		rest += e * e
	}
	if rest <= 1e-12*my*my { // the values are on a line
		if slope == 0 {
			return 0, 0
		}
		return slope * (n - 1), math.Copysign(math.Inf(1), slope)
	}
	return slope * (n - 1), slope / math.Sqrt(rest/(n-2)/sxx)
}

// steady returns a text about the steady growth of a series, or "" if the series does not grow
// steadily. The first third of the values is ignored, because caches and heaps fill at first.
func steady(what string, ys []float64) string {
	ys = ys[len(ys)/3:]
	if len(ys) < growthLooks {
		return ""
	}
	mean := 0.0
	for _, y := range ys {
		mean += y / float64(len(ys))
	}
	rise, errors := growth(ys)
	if rise <= growthShare*mean || errors <= growthErrors {
		return ""
	}
	return fmt.Sprintf("%s grew by %.1f over %d checks, mean %.1f", what, rise, len(ys), mean)
}
