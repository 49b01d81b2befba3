// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/bench/replay"
)

// Both gangs of the placer finish. Of plain Nomad's two gangs, one finishes and the other counts
// until the end of the run. Runs with the same seed form pairs; the third repetition has none.
func TestMargins(t *testing.T) {
	t.Parallel()
	ms := sample().Margins
	if len(ms) != 1 {
		t.Fatalf("%d margins", len(ms))
	}
	m := ms[0]
	if m.Pairs != 2 || !m.AtLeast || m.Deadlocked != 0 || m.Unfinished != 0 {
		t.Errorf("pairs %+v", m)
	}
	// Both runs end after 20 s with seed 0, and after 21 s with seed 1.
	want := math.Sqrt(10*18) / math.Sqrt(20*18) // seed 0
	want = math.Sqrt(want * math.Sqrt(11*19) / math.Sqrt(21*19))
	if math.Abs(m.GeomeanJCT.Mean-want) > 1e-9 || m.GeomeanJCT.Met || m.GeomeanJCT.Low >= m.GeomeanJCT.Mean || m.GeomeanJCT.High <= m.GeomeanJCT.Mean {
		t.Errorf("geomean %+v, want %v", m.GeomeanJCT, want)
	}
	if m.Makespan.Mean != 1 || m.Useful.Mean != 2 || !m.Useful.Met || !m.Useful.Surely || m.Makespan.Met {
		t.Errorf("makespan %+v, useful %+v", m.Makespan, m.Useful)
	}
	if got, want := m.verdict(), "no / yes / no"; got != want {
		t.Errorf("verdict %q, want %q", got, want)
	}
}

// Lines on two GPU models have margins, too, although they have no simulation.
func TestMarginsOnTwoModels(t *testing.T) {
	t.Parallel()
	r := &report{GPUs: 8, Jobs: 2}
	r.add(run1("nomad-model-any", false, 1), result(20, nil))
	r.add(run1("pal-model-speed", false, 1), result(10, nil))
	if len(r.Margins) != 1 || r.Margins[0].Scheduler != "pal-model-speed" || r.Margins[0].Against != "nomad-model-any" {
		t.Errorf("margins %+v", r.Margins)
	}
}

// The placer that chooses GPUs by speed is compared with the placer that packs.
func TestMarginsOfPlacement(t *testing.T) {
	t.Parallel()
	r := &report{GPUs: 8, Jobs: 2}
	r.add(run1("pal-packed", false, 1), result(20, &replay.Prediction{}))
	r.add(run1("pal-default", false, 1), result(10, &replay.Prediction{}))
	if len(r.Margins) != 1 || r.Margins[0].Scheduler != "pal-default" || r.Margins[0].Against != "pal-packed" {
		t.Fatalf("margins %+v", r.Margins)
	}
	if got := r.Margins[0].AvgJCT; got == nil || got.Mean >= 1 || got.Target != 0 {
		t.Errorf("average JCT %+v", got)
	}
}

// Pairs without a ratio are left out and counted.
func TestMarginsLeaveOut(t *testing.T) {
	t.Parallel()
	r := &report{GPUs: 8, Jobs: 2}
	stuck, unfinished := result(20, nil), result(20, nil)
	stuck.Stuck = true
	done := &replay.Prediction{}
	r.add(run1("nomad-binpack", false, 1), stuck)
	r.add(run1("nomad-binpack", false, 2), result(20, done))
	r.add(run1("nomad-binpack", false, 3), result(20, done))
	r.Runs[0].Raw[1].Predicted, r.Runs[0].Raw[2].Predicted = nil, nil
	unfinished.Predicted = done
	r.add(run1("pal-default", false, 1), result(10, done))
	r.add(run1("pal-default", false, 2), unfinished)
	r.add(run1("pal-default", false, 3), result(10, done))
	m := r.Margins[0]
	if got, want := []int{m.Pairs, m.Deadlocked, m.Unfinished}, []int{1, 1, 1}; !cmp.Equal(got, want) {
		t.Errorf("pairs, deadlocked, unfinished %v, want %v", got, want)
	}
	if m.GeomeanJCT.High != 0 || m.GeomeanJCT.Surely {
		t.Errorf("a single pair has an interval: %+v", m.GeomeanJCT)
	}
	want := []string{"pal-default", "nomad-binpack", "1, 1 deadlocked, 1 unfinished", m.AvgJCT.String(), m.GeomeanJCT.String(), "+50 %", "-33 %", "mean / mean / no"}
	if got := m.cells(); !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

func TestNewRatio(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		xs          []float64
		target      float64
		met, surely bool
	}{
		{[]float64{0.4, 0.41, 0.42}, makespanTarget, true, true},
		{[]float64{0.3, 0.7}, makespanTarget, true, false},
		{[]float64{0.6}, makespanTarget, false, false},
		{[]float64{1.4, 1.41}, usefulTarget, true, true},
		{[]float64{1.2}, usefulTarget, false, false},
		{[]float64{0.1, 0.1}, 0, false, false},
	} {
		r := newRatio(c.xs, c.target)
		if r.Met != c.met || r.Surely != c.surely {
			t.Errorf("%v of %v: %+v", c.xs, c.target, r)
		}
	}
	if newRatio(nil, 1) != nil {
		t.Error("a ratio without pairs")
	}
}
