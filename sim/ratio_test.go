// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Of two policies that differ only by chance, neither is better, whichever comes first; and about
// 95 % of the intervals contain 1.
func TestRatioOfEqualPolicies(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const tries, pairs = 2000, 20
	hits, sum := 0, 0.0
	for range tries {
		var a, b, w []float64
		for i := range pairs {
			a, b = append(a, math.Exp(0.5*rng.NormFloat64())), append(b, math.Exp(0.5*rng.NormFloat64()))
			w = append(w, a[i]+b[i])
		}
		r, back := RatioOf(a, b, w), RatioOf(b, a, w)
		if math.Abs(r.Value*back.Value-1) > 1e-9 || math.Abs(r.Low*back.High-1) > 1e-9 {
			t.Fatalf("a/b is %v, b/a is %v", r, back)
		}
		if r.Low <= 1 && 1 <= r.High {
			hits++
		}
		sum += math.Log(r.Value)
	}
	if share := float64(hits) / tries; share < 0.93 || share > 0.97 {
		t.Errorf("%.3f of the intervals contain 1", share)
	}
	if mean := math.Exp(sum / tries); math.Abs(mean-1) > 0.01 {
		t.Errorf("mean ratio %.3f", mean)
	}
}

func TestStudent95(t *testing.T) {
	for freedom, want := range map[float64]float64{4: 2.776, 9: 2.262, 29: 2.045} {
		if got := student95(freedom); math.Abs(got/want-1) > 0.02 {
			t.Errorf("with %v degrees of freedom: %.3f, want %.3f", freedom, got, want)
		}
	}
}

// A run without any wait counts, and a single pair has no interval.
func TestRatioOfZeros(t *testing.T) {
	if r := RatioOf([]float64{0, 2}, []float64{1, 3}, []float64{1, 1}); r.Value != 0.5 {
		t.Errorf("ratio %v, want 0.5", r)
	}
	if r := RatioOf([]float64{1}, []float64{2}, []float64{1}); r.Value != 0.5 || !math.IsNaN(r.Low) {
		t.Errorf("ratio %v, want 0.5 without an interval", r)
	}
}
