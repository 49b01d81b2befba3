// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/sim/paldata"
)

func palData(t *testing.T) string {
	t.Helper()
	if paldata.Dir() == "" {
		t.Skipf("%s is not set: nothing to compare calibration with", paldata.Env)
	}
	return paldata.Dir()
}

// The bounds that the product promises, on the noise that SGEMM has on
// Longhorn. Measured with one run a session: 0.034 class changes and 0.116
// confirmed false alarms per GPU-year, 99.1 % of 2 % steps found in 2 sessions.
func TestDriftBounds(t *testing.T) {
	data, err := readSeries(palData(t), paldata.AllSeries()[0])
	if err != nil {
		t.Fatal(err)
	}
	gpus := data.noises(10)
	if len(gpus) < 300 {
		t.Fatalf("%d GPUs with 10 runs, want the whole cluster", len(gpus))
	}
	for seed := range uint64(3) {
		f := simulateDrift(gpus, 5, 1, seed)
		if f.ClassChangesPerGPUYear > 0.1 {
			t.Errorf("seed %d: %.3f class changes per GPU-year, at most 0.1 promised", seed, f.ClassChangesPerGPUYear)
		}
		if f.ClassChangesWithout < 1 {
			t.Errorf("seed %d: %.3f class changes per GPU-year without hysteresis: the noise is not what it should be", seed, f.ClassChangesWithout)
		}
		if f.FalseConfirmedPerGPUYear > 0.2 {
			t.Errorf("seed %d: %.3f confirmed false alarms per GPU-year, at most 0.2 promised", seed, f.FalseConfirmedPerGPUYear)
		}
		if f.StepFound[0.02] < 0.97 || f.StepMedianSessions[0.02] > 2 {
			t.Errorf("seed %d: %.1f %% of 2 %% steps found within 2 sessions, median %v", seed, 100*f.StepFound[0.02], f.StepMedianSessions[0.02])
		}
	}
}

// Classes of all series: those of SGEMM were found before by other means; what
// is noise (see TestClassesAreStable) is one class; the six bad GPUs of
// Lonestar6 are outliers.
func TestClassesOfTheClusters(t *testing.T) {
	want := map[string][profile.MaxClass]int{
		"longhorn sgemm": {115, 171, 92, 11, 3}, "longhorn resnet50": {336}, "longhorn bert": {136}, "longhorn pagerank": {28, 144},
		"frontera resnet50": {9, 243, 21, 6, 17}, "frontera bert": {0, 267, 1, 7, 1}, "frontera pagerank": {248},
		"lonestar6 resnet50": {63, 83, 46, 19, 8},
	}
	got := map[string][profile.MaxClass]int{}
	for _, s := range paldata.AllSeries() {
		data, err := readSeries(palData(t), s)
		if err != nil {
			t.Fatal(err)
		}
		byClass, outliers, err := data.classes()
		if err != nil {
			t.Fatal(err)
		}
		got[s.Cluster+" "+s.App] = byClass
		if bad := s.Cluster == "lonestar6"; bad != (outliers == 6) || !bad && outliers > 0 {
			t.Errorf("%s %s: %d outliers", s.Cluster, s.App, outliers)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// What halves of the runs say of each other. Measured: SGEMM 96.4 % same class
// and rank correlation 0.996; BERT's rank correlation on Longhorn is −0.03, so
// its classes mean nothing there, and calibration cannot mend that.
func TestClassesAreStable(t *testing.T) {
	dir := palData(t)
	for _, tc := range []struct {
		series     int
		same, rank float64
	}{
		{0, 0.95, 0.99}, // Longhorn SGEMM
		{3, 0.99, 0.7},  // Longhorn PageRank
		{5, 0.98, 0.85}, // Frontera BERT
		{6, 0.99, 0.4},  // Frontera PageRank: one class
	} {
		data, err := readSeries(dir, paldata.AllSeries()[tc.series])
		if err != nil {
			t.Fatal(err)
		}
		st, err := data.halves(2, 1)
		if err != nil {
			t.Fatal(err)
		}
		if st.Same < tc.same || st.Rank < tc.rank {
			t.Errorf("%s %s: %.3f in the same class, rank correlation %.3f, want at least %v and %v",
				data.Cluster, data.App, st.Same, st.Rank, tc.same, tc.rank)
		}
	}
}

// The artifact's cluster of 64 GPUs: bins and their values are those that
// scikit-learn's k-means found there, which is the optimum.
func TestBinsEqualTheArtifacts(t *testing.T) {
	f, err := os.Open(filepath.Join(palData(t), "gpus_64_seed42.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	recs, err := csv.NewReader(f).ReadAll()
	if err != nil || len(recs) != 65 {
		t.Fatalf("%d records, %v", len(recs), err)
	}
	column := map[string]int{}
	for i, name := range recs[0] {
		column[name] = i
	}
	inertia := map[string]float64{"A": 0.0484360, "B": 0.00580970, "C": 0.00520567, "D": 8.7803e-5}
	for _, class := range []string{"A", "B", "C", "D"} {
		var scores, want []float64
		for _, rec := range recs[1:] {
			scores = append(scores, number(t, rec[column["class"+class]]))
			want = append(want, number(t, rec[column["sf"+class]]))
		}
		b := profile.Bins(scores, profile.KMeans, nil)
		for i := range scores {
			if got := b.Values[b.Rank[i]]; math.Abs(got-want[i]) > 1e-12 {
				t.Errorf("class %s, GPU %d: value %.15f, scikit-learn has %.15f", class, i, got, want[i])
			}
		}
		if got := profile.KMeans1D(scores, len(b.Values)).Inertia; math.Abs(got/inertia[class]-1) > 1e-4 {
			t.Errorf("class %s: inertia %v, scikit-learn has %v", class, got, inertia[class])
		}
	}
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
