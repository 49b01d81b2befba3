// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package classify

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
)

func v(x float64) *float64 { return &x }

func TestSummarize(t *testing.T) {
	f := Summarize([]Reading{
		{Utilization: v(0.9), Power: v(0.5), PowerCap: v(0)},
		{Utilization: v(0.01), Power: v(0.1), PowerCap: v(0)}, // waits for data
		{Power: v(0.1)}, // unknown load
		{Utilization: v(1), Power: v(0.7), Memory: v(0.3)},
	})
	if f.Readings != 2 || math.Abs(f.Power-0.6) > 1e-12 || f.PowerCap != 0 || f.Memory != 0.3 || !math.IsNaN(f.Compute) {
		t.Errorf("%+v", f)
	}
}

// features sets NaN for each unknown value (−1).
func features(powerCap, power, compute, memory float64) Features {
	x := []float64{powerCap, power, compute, memory}
	for i := range x {
		if x[i] < 0 {
			x[i] = math.NaN()
		}
	}
	return Features{Readings: 50, PowerCap: x[0], Power: x[1], Compute: x[2], Memory: x[3]}
}

func TestByThresholds(t *testing.T) {
	for _, tc := range []struct {
		name string
		f    Features
		want Verdict
	}{
		{"SGEMM on V100", features(0.95, 0.99, -1, -1), Verdict{pal.ClassA, "the power cap held clocks down for 95 % of the time", true}},
		{"ResNet-50 on V100", features(0.05, 0.605, -1, -1), Verdict{pal.ClassA, "60 % of the power limit drawn", false}},
		{"BERT on V100", features(0.02, 0.51, -1, -1), Verdict{pal.ClassB, "51 % of the power limit drawn, which is neither high nor low", true}},
		{"PageRank on V100", features(0, 0.27, -1, -1), Verdict{pal.ClassD, "27 % of the power limit drawn, never at the cap, so the job is memory-bound; without memory counters, classes C and D cannot be distinguished", false}},
		{"scattered access", features(0, 0.3, 0.05, 0.2), Verdict{pal.ClassD, "30 % of the power limit drawn and only 20 % of the memory bandwidth used", true}},
		{"streaming", features(0, 0.55, 0.1, 0.85), Verdict{pal.ClassC, "85 % of the memory bandwidth and 10 % of the compute units used", true}},
		{"streaming at low power", features(0, 0.35, 0.3, 0.85), Verdict{pal.ClassC, "35 % of the power limit drawn and 85 % of the memory bandwidth used", true}},
		{"tensor cores", features(0, 0.5, 0.8, 0.3), Verdict{pal.ClassA, "80 % of the compute units used, 30 % of the memory bandwidth", true}},
		{"no counter of the cap", features(-1, 0.7, -1, -1), Verdict{pal.ClassA, "70 % of the power limit drawn", true}},
		{"between B and D", features(0.02, 0.41, -1, -1), Verdict{pal.ClassB, "41 % of the power limit drawn, which is neither high nor low", false}},
	} {
		got, ok := ByThresholds(tc.f)
		if diff := cmp.Diff(tc.want, got); diff != "" || !ok {
			t.Errorf("%s: %v (-want +got)\n%s", tc.name, ok, diff)
		}
	}
	few := features(0.9, 0.9, -1, -1)
	few.Readings = 9
	if got, ok := ByThresholds(few); ok || got.Reason != "only 9 readings of working GPUs, but at least 10 are needed" {
		t.Errorf("few readings: %+v, %v", got, ok)
	}
	if got, ok := ByThresholds(features(-1, -1, -1, -1)); ok || got.Reason != "the readings do not contain the power drawn, and no other reading determines the class" {
		t.Errorf("nothing known: %+v, %v", got, ok)
	}
}
