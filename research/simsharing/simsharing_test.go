// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/nomad-pal/nomad-pal/bench/paldata"
	"github.com/nomad-pal/nomad-pal/pal"
)

func measured(t *testing.T) Pairs {
	t.Helper()
	if os.Getenv("PAL_DATA") == "" {
		t.Skip("PAL_DATA is not set; set it to the directory with Gavel's measurements")
	}
	ps, err := ReadPairs(filepath.Join(paldata.Dir(), "gavel", "pairs.csv"))
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

// explained, computed by hand: rates of 0.2, 0.4 and 0.9 have the mean 0.5 and a sum of squares
// of 0.26; the guess by class leaves 0.02 of it. A pair that does not fit does not count.
func TestExplained(t *testing.T) {
	ps := Pairs{fittedOn: {{Of: "resnet-50", Beside: "a3c"}: 0.2, {Of: "resnet-50", Beside: "lm"}: 0.4, {Of: "resnet-18", Beside: "lm"}: 0.9, {Of: "lm", Beside: "lm"}: 0}}
	if got := explained(ps, fittedOn, means(ps, fittedOn, bothClasses, nil)); math.Abs(got-(1-0.02/0.26)) > 1e-9 {
		t.Errorf("by class %v", got)
	}
	if got := explained(ps, fittedOn, means(ps, fittedOn, one, nil)); math.Abs(got) > 1e-9 {
		t.Errorf("one number %v", got)
	}
	// Without the pairs of resnet-18 there is no pair of class D, so the mean of the others
	// predicts it.
	if got := means(ps, fittedOn, bothClasses, without(func(job string) bool { return job == "resnet-18" }))(Pair{Of: "resnet-18", Beside: "lm"}); math.Abs(got-0.3) > 1e-9 {
		t.Errorf("unseen %v", got)
	}
}

// A share of the variance that rounds to 0 has no sign.
func TestPartHasNoNegativeZero(t *testing.T) {
	for p, want := range map[float64]string{-1e-16: "0.00", -0.004: "0.00", 0: "0.00", 0.004: "0.00", -0.006: "-0.01", 1: "1.00"} {
		if got := part(p); got != want {
			t.Errorf("%v is written %s, not %s", p, got, want)
		}
	}
}

// The product's table is the one that this command makes.
func TestTable(t *testing.T) {
	made := table(measured(t), fittedOn)
	for i, of := range pal.AppClasses() {
		for k, by := range pal.AppClasses() {
			if ships := 1 / (1 + pal.Interference(of, by)); math.Abs(ships-made[i][k]) > 0.006 {
				t.Errorf("%s beside %s: %.3f, the core has %.2f", of, by, made[i][k], ships)
			}
		}
	}
}

// No other division of the seven applications into four classes explains more of the V100's
// pairs.
func TestClassesExplainMost(t *testing.T) {
	ps := measured(t)
	apps := []string{"resnet-50", "transformer", "lm", "cyclegan", "a3c", "recommendation", "resnet-18"}
	ships := explained(ps, fittedOn, means(ps, fittedOn, bothClasses, nil))
	class := map[string]byte{}
	var try func(at int, used byte)
	try = func(at int, used byte) {
		if at < len(apps) {
			for k := range min(used+1, pal.NumClasses) {
				class[apps[at]] = k
				try(at+1, max(used, k+1))
			}
			return
		}
		by := func(p Pair) string { return string([]byte{class[appOf(p.Of)], class[appOf(p.Beside)]}) }
		if got := explained(ps, fittedOn, means(ps, fittedOn, by, nil)); got > ships+1e-9 {
			t.Errorf("%v explain %.4f, the shipped ones %.4f", class, got, ships)
		}
	}
	try(0, 0)
}

// On the cluster that simulates fastest, ours is better than random neighbours and than exclusive
// use.
func TestCell(t *testing.T) {
	cells, err := cellsOf(filepath.Join(paldata.Dir(), "gavel"), "ed69ec", fittedOn, true, 1, measured(t))
	if err != nil {
		t.Fatal(err)
	}
	c := cells[2] // load 110 %, no gang is stopped
	for _, policy := range []string{exclusive, random, ours} {
		if c.runs[policy], err = c.run(policy); err != nil {
			t.Fatal(err)
		}
	}
	if o, r, e := c.runs[ours].avgJCT, c.runs[random].avgJCT, c.runs[exclusive].avgJCT; o >= r || o > 0.8*e {
		t.Errorf("average: ours %.0f s, random neighbours %.0f s, exclusive use %.0f s", o, r, e)
	}
}
