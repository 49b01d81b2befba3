// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// There is a forecast for every line of the campaign on every population, and none is below the
// lower bound.
func TestForesee(t *testing.T) {
	t.Parallel()
	o := options{nodes: 16, jobs: 20, outliers: "1,0", reps: 1, seed: 1, compress: 240, longest: 20 * time.Second}
	var a, b bytes.Buffer
	if err := o.foreseeAll(&a); err != nil {
		t.Fatal(err)
	}
	if err := o.foreseeAll(&b); err != nil || a.String() != b.String() {
		t.Errorf("the second call returned another forecast (%v)", err)
	}
	floor, lines := 0.0, 0
	for _, row := range strings.Split(strings.TrimSpace(a.String()), "\n")[1:] {
		cells := strings.Fields(row)
		makespan, err := strconv.ParseFloat(cells[len(cells)-2], 64)
		if err != nil {
			t.Fatalf("%q: %v", row, err)
		}
		if strings.Contains(row, "floor") {
			floor = makespan
			continue
		}
		lines++
		if stuck := cells[len(cells)-1] != "0"; makespan < floor*0.95 && !stuck {
			t.Errorf("%s is below the lower bound of %v s", row, floor)
		}
	}
	onNomad := slices.DeleteFunc(o.schedulers(), func(s scheduler) bool { return s.limit != nil })
	if want := 2 * (len(onNomad) + 12); lines != want {
		t.Errorf("%d lines, want %d", lines, want)
	}
}
