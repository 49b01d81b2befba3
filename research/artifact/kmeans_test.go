// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package artifact

import (
	"math"
	"testing"
)

// The worked example of the PAL artifact: 2 nodes × 4 GPUs, with scores per class, and the binned
// scores that its code computes.
func TestBinsWorkedExample(t *testing.T) {
	for _, tc := range []struct {
		class  string
		scores []float64
		rank   []int
		values []float64
	}{
		{"A", []float64{1.00, 1.02, 1.30, 0.98, 1.01, 1.28, 0.99, 1.03},
			[]int{0, 0, 1, 0, 0, 1, 0, 0}, []float64{0.8758169935, 1.1241830065}},
		{"B", []float64{1.00, 1.01, 1.00, 1.04, 1.04, 1.00, 1.05, 1.00},
			[]int{0, 0, 0, 1, 1, 0, 1, 0}, []float64{0.979791395, 1.020208605}},
		{"C", []float64{1.00, 1.00, 1.05, 1.00, 1.05, 1.04, 1.00, 1.00},
			[]int{0, 0, 1, 0, 1, 1, 0, 0}, []float64{0.9771986971, 1.0228013029}},
		{"D", []float64{1.000, 1.001, 1.000, 1.010, 1.000, 1.000, 1.012, 1.000},
			[]int{0, 0, 0, 1, 0, 0, 1, 0}, []float64{0.9946134085, 1.0053865915}},
	} {
		for i, got := range Bins(tc.scores) {
			if want := tc.values[tc.rank[i]]; math.Abs(got-want) > 1e-9 {
				t.Errorf("class %s, score %v: value %v, want %v", tc.class, tc.scores[i], got, want)
			}
		}
	}
}

// An outlier adds a cluster.
func TestBinsOfOutliers(t *testing.T) {
	var scores []float64
	for i := range 20 {
		scores = append(scores, 1+float64(i%3)*0.1+float64(i)*1e-5)
	}
	for _, outlier := range []bool{false, true} {
		want := 2
		if outlier {
			scores = append(scores, 3)
			want = 3
		}
		values := map[float64]bool{}
		for _, v := range Bins(scores) {
			values[v] = true
		}
		if len(values) != want {
			t.Errorf("with an outlier %v: %d bins, want %d", outlier, len(values), want)
		}
	}
}
