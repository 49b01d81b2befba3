// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package paldata

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/sim/population"
)

// The product's tables are equal to those computed from the measurements.
func TestShippedTables(t *testing.T) {
	if Dir() == "" {
		t.Skip("PAL_DATA is not set: the tables of sim/population are not compared with the measurements")
	}
	full, err := Tables(Dir())
	if err != nil {
		t.Fatal(err)
	}
	var want []population.Table
	for _, f := range full {
		want = append(want, compact(f))
	}
	if diff := cmp.Diff(want, population.Tables()); diff != "" {
		t.Errorf("(-measurements +shipped)\n%s", diff)
	}
}

// compact is the table with quantiles at [population.Probabilities] and at most 7 quantiles of
// the outliers, rounded: the form in which the product contains it.
func compact(t population.Table) population.Table {
	c := t
	c.Quantiles, c.OutlierQuantiles = nil, nil
	for _, p := range population.Probabilities() {
		c.Quantiles = append(c.Quantiles, round(profile.Quantile(t.Quantiles, p), 4))
	}
	if n := len(t.OutlierQuantiles); n > 0 {
		kept := min(n, 7)
		for i := range kept {
			u := float64(i) / math.Max(1, float64(kept-1))
			c.OutlierQuantiles = append(c.OutlierQuantiles, round(profile.Quantile(t.OutlierQuantiles, u), 2))
		}
	}
	c.Noise, c.OutlierShare = round(t.Noise, 5), round(t.OutlierShare, 4)
	c.MedianTime = roundDigits(t.MedianTime, 5)
	return c
}

func round(x float64, decimals int) float64 {
	f := math.Pow10(decimals)
	return math.Round(x*f) / f
}

// roundDigits rounds to this many significant digits.
func roundDigits(x float64, digits int) float64 {
	f := math.Pow10(digits - 1 - int(math.Floor(math.Log10(x))))
	return math.Round(x*f) / f
}

func TestParseVariability(t *testing.T) {
	rows, err := parseVariability(strings.NewReader("perf,uuid\n2.5,GPU-1\n3,GPU-2\n"))
	if diff := cmp.Diff([]Row{{GPU: "GPU-1", Time: 2.5}, {GPU: "GPU-2", Time: 3}}, rows); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	for in, want := range map[string]string{
		"":                      "header: EOF",
		"uuid,time\n":           "line 1: the header",
		"uuid,perf\nGPU-1,-3\n": `line 2: perf: "-3" is not a positive number`,
		"uuid,perf\nGPU-1\n":    "record on line 2: wrong number of fields",
	} {
		if _, err := parseVariability(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", in, err, want)
		}
	}
}

func TestNewTable(t *testing.T) {
	runs := []run{{"a", 10}, {"a", 11}, {"a", 10.5}, {"b", 20}, {"b", 21}, {"b", 19}, {"c", 21}, {"c", 100}, {"c", 22}}
	tb, err := newTable("x", "y", runs)
	if err != nil {
		t.Fatal(err)
	}
	want := population.Table{Cluster: "x", App: "y", GPUs: 3, Runs: 9, MedianTime: 20, Quantiles: []float64{0.525, 1, 1.1},
		Noise: 1.4826 * 0.5 / 10.5, OutlierShare: 1.0 / 9, OutlierQuantiles: []float64{5}}
	if diff := cmp.Diff(want, tb); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := newTable("x", "y", []run{{"a", -1}}); err == nil || !strings.Contains(err.Error(), `run 1 of y on x has GPU "a" and time -1`) {
		t.Errorf("negative time: %v", err)
	}
}
