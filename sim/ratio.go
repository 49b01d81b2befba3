// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import "math"

// Ratio compares two policies by one figure, over pairs of runs with the same jobs and GPUs. Low
// and High are the limits of its 95 % confidence interval.
type Ratio struct{ Value, Low, High float64 }

// RatioOf divides the total of a by the total of b. a[i] and b[i] belong to one pair of runs, and a
// pair counts in inverse proportion to weight[i]. The ratio of b to a is exactly the inverse, as
// long as the weights treat both alike. Weights from b alone would make a look worse than it is:
// runs in which b was lucky would count more.
//
// The interval uses Student's distribution. With fewer than two pairs, the interval is unknown, and
// its limits are NaN.
func RatioOf(a, b, weight []float64) Ratio {
	var sumA, sumB float64
	for i, w := range weight {
		if w > 0 {
			sumA += a[i] / w
			sumB += b[i] / w
		}
	}
	r := Ratio{Value: sumA / sumB, Low: math.NaN(), High: math.NaN()}
	squares, n := 0.0, 0.0
	for i, w := range weight {
		if w > 0 {
			d := a[i]/w/sumA - b[i]/w/sumB
			squares += d * d
			n++
		}
	}
	if n > 1 {
		spread := math.Exp(student95(n-1) * math.Sqrt(squares*n/(n-1)))
		r.Low, r.High = r.Value/spread, r.Value*spread
	}
	return r
}

// student95 is the 0.975 quantile of Student's distribution, by the series of Cornish and Fisher.
// With 4 degrees of freedom it is 2 % too small, with 9 only 0.1 %.
func student95(freedom float64) float64 {
	const z = 1.959964
	return z + (z*z*z+z)/(4*freedom) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*freedom*freedom)
}
