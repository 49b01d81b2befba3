// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const (
	pairsHead = "gpu,job_a,job_b,gpus,steps_per_s_a,steps_per_s_b\n"
	ratesHead = "gpu,consolidated,job,gpus,steps_per_s\n"
)

func write(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// ReadPairs returns the rates of both jobs on one GPU, relative to alone.
func TestReadPairs(t *testing.T) {
	rates := ratesHead + "v100,yes,lm/80,1,10\nv100,yes,a3c,1,4\nv100,no,a3c,1,100\nv100,yes,a3c,2,8\n"
	dir := write(t, map[string]string{"throughputs.csv": rates,
		"pairs.csv": pairsHead + "v100,lm/80,a3c,1,7,1\nv100,lm/80,lm/80,1,0,0\nv100,lm/80,a3c,2,0,0\n"})
	ps, err := ReadPairs(filepath.Join(dir, "pairs.csv"))
	want := Pairs{"V100": {{"lm/80", "a3c"}: 0.7, {"a3c", "lm/80"}: 0.25, {"lm/80", "lm/80"}: 0}}
	if err != nil || !reflect.DeepEqual(ps, want) {
		t.Errorf("got %v, %v\nwant %v", ps, err, want)
	}
	for row, says := range map[string]string{
		"v100,lm/80,gan,1,7,1\n": "pairs.csv:2: throughputs.csv has no rate of gan alone on a V100",
		"v100,lm/80,a3c,1,x,1\n": `pairs.csv:2: column steps_per_s_a: "x" is not a rate`,
		"v100,lm/80,a3c,2,7,1\n": "pairs.csv: no pair on one GPU",
	} {
		dir := write(t, map[string]string{"throughputs.csv": rates, "pairs.csv": pairsHead + row})
		if _, err := ReadPairs(filepath.Join(dir, "pairs.csv")); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %s", row, err, says)
		}
	}
}

// The costs of several neighbours add up; with one that does not fit, the rate is 0.
func TestRateBesideSeveral(t *testing.T) {
	ps := Pairs{"V100": {{"a", "b"}: 0.5, {"a", "c"}: 0.8, {"a", "d"}: 0}}
	for _, tc := range []struct {
		others string
		want   float64
	}{{"b", 0.5}, {"bb", 1. / 3}, {"bc", 1 / 2.25}, {"bd", 0}, {"", 1}} {
		if got := ps.Rate("V100", "a", slices.DeleteFunc(strings.Split(tc.others, ""), func(s string) bool { return s == "" })); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("beside %q: %v, want %v", tc.others, got, tc.want)
		}
	}
}

// Large returns applications that do not fit into half of the memory, and one of every other two
// that do not fit together. All remaining pairs fit.
func TestLarge(t *testing.T) {
	ps := Pairs{"V100": {}, "K80": {}}
	for _, a := range []string{"big", "p", "q", "small"} {
		for _, b := range []string{"big", "p", "q", "small"} {
			ps["V100"][Pair{a, b}], ps["K80"][Pair{a, b}] = 0.5, 0.5
		}
	}
	for _, of := range []string{"big", "p"} {
		ps["V100"][Pair{"big", of}], ps["V100"][Pair{of, "big"}] = 0, 0
	}
	ps["K80"][Pair{"p", "q"}], ps["K80"][Pair{"q", "p"}] = 0, 0
	for models, want := range map[string]string{"V100": "big", "K80": "p", "V100 K80": "big p"} {
		if got := strings.Join(slices.Sorted(maps.Keys(ps.Large(strings.Fields(models)))), " "); got != want {
			t.Errorf("on %s: %q, want %q", models, got, want)
		}
	}
}
