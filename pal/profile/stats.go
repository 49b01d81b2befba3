// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"math"
	"slices"
)

// madSigma scales a median absolute deviation to the standard deviation of a
// normal distribution.
const madSigma = 1.4826

// Median returns the median of the values. For an even number of values, it returns the mean of the
// middle two. Without values, it returns NaN. Median does not change its input.
func Median(xs []float64) float64 { return Quantile(sorted(xs), 0.5) }

// Quantile returns the p-quantile of ascending values by linear interpolation, or NaN without
// values. p is clamped to 0…1.
func Quantile(asc []float64, p float64) float64 {
	if len(asc) == 0 {
		return math.NaN()
	}
	pos := math.Max(0, math.Min(1, p)) * float64(len(asc)-1)
	i := int(pos)
	if i == len(asc)-1 {
		return asc[i]
	}
	return asc[i] + (pos-float64(i))*(asc[i+1]-asc[i])
}

// RobustSigma returns the standard deviation, estimated from the median absolute deviation from
// `center`.
func RobustSigma(xs []float64, center float64) float64 {
	dev := make([]float64, len(xs))
	for i, x := range xs {
		dev[i] = math.Abs(x - center)
	}
	return madSigma * Median(dev)
}

// repetitionSigma does the same as RobustSigma, for few values. For up to 9 values, it applies the
// correction factors of Croux and Rousseeuw (1992).
func repetitionSigma(xs []float64, center float64) float64 {
	n := len(xs)
	factor := float64(n) / (float64(n) - 0.8)
	small := [...]float64{2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}
	if n < len(small) {
		factor = small[n]
	}
	return factor * RobustSigma(xs, center)
}

func sorted(xs []float64) []float64 {
	asc := slices.Clone(xs) // slices.Sorted allocates several times as much
	slices.Sort(asc)
	return asc
}
