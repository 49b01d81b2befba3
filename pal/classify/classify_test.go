// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package classify

import (
	"math"
	"math/rand/v2"
	"strings"
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

// triples returns 10 jobs around each of three points in the plane of compute and memory.
func triples(counters bool) []Features {
	rng := rand.New(rand.NewPCG(1, 0))
	var fs []Features
	for _, c := range [][4]float64{{0.8, 0.95, 0.85, 0.2}, {0.02, 0.5, 0.45, 0.45}, {0, 0.3, 0.1, 0.8}} {
		for range 10 {
			n := func(x float64) float64 { return math.Max(0, x+0.03*rng.NormFloat64()) }
			f := features(n(c[0]), n(c[1]), n(c[2]), n(c[3]))
			if !counters {
				f.Compute, f.Memory = math.NaN(), math.NaN()
			}
			fs = append(fs, f)
		}
	}
	return fs
}

func TestLearn(t *testing.T) {
	for _, counters := range []bool{true, false} {
		fs := triples(counters)
		g, err := Learn(fs)
		if err != nil || g.Counters != counters {
			t.Fatalf("%+v, %v", g, err)
		}
		for i, f := range fs {
			want := pal.AppClasses()[i/10]
			if got, ok := g.Judge(f); !ok || got.Class != want || !got.Sure {
				t.Errorf("counters %v, job %d: %+v, %v, want class %s", counters, i, got, ok, want)
			}
		}
		rand.New(rand.NewPCG(2, 0)).Shuffle(len(fs), func(i, j int) { fs[i], fs[j] = fs[j], fs[i] })
		if again, err := Learn(fs); err != nil || again != g {
			t.Errorf("in another order: %+v, want %+v (%v)", again, g, err)
		}
	}
}

// A job without counters must not be ignored silently. Instead, power classifies the whole
// history.
func TestLearnFallsBackToPower(t *testing.T) {
	fs := triples(true)
	fs[3].Memory = math.NaN()
	g, err := Learn(fs)
	if err != nil || g.Counters {
		t.Errorf("%+v, %v", g, err)
	}
	if got, ok := g.Judge(features(0.8, 0.95, -1, -1)); !ok || got.Class != pal.ClassA || !strings.HasPrefix(got.Reason, "power 95 %, at its cap 80 % of the time") {
		t.Errorf("%+v, %v", got, ok)
	}
	if _, ok := g.Judge(features(0.8, -1, 0.5, 0.5)); ok {
		t.Error("a job without power readings is classified by power")
	}
}

func TestLearnNeedsHistory(t *testing.T) {
	fs := triples(true)[:22]
	for i := range 3 {
		fs[i].Readings = 1
	}
	if _, err := Learn(fs); err == nil || err.Error() != "only 19 jobs have enough readings, but at least 20 are needed" {
		t.Errorf("%v", err)
	}
	if _, err := Learn(nil); err == nil {
		t.Error("groups were learned from no jobs")
	}
}

// Learn does not split similar jobs by chance.
func TestLearnRefusesOneGroup(t *testing.T) {
	var fs []Features
	for range 3 {
		fs = append(fs, triples(true)[:10]...)
	}
	if g, err := Learn(fs); err == nil || !strings.HasPrefix(err.Error(), "the 30 jobs do not form three groups: two groups have a distance of 0.0") {
		t.Errorf("%+v, %v", g, err)
	}
}

func TestJudge(t *testing.T) {
	job := features(0.8, 0.95, 0.85, 0.2)
	if v, by, ok := Judge(triples(true), job); !ok || by != "comparison with 30 remembered jobs" || v.Class != pal.ClassA {
		t.Errorf("with a history: %+v by %s, %v", v, by, ok)
	}
	if v, by, ok := Judge(triples(true)[:5], job); !ok || by != "thresholds" || v.Class != pal.ClassA {
		t.Errorf("without: %+v by %s, %v", v, by, ok)
	}
}
