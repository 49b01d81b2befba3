// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nomad-pal/nomad-pal/bench/paldata"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// TestVariants: every variant has a unique name and options that the queue accepts.
func TestVariants(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range variants() {
		if seen[v.name] {
			t.Errorf("variant %q is listed twice", v.name)
		}
		seen[v.name] = true
		if v.nomad {
			continue
		}
		if _, err := queue.New(v.queue); err != nil {
			t.Errorf("variant %q: %v", v.name, err)
		}
		if v.preempt && !v.queue.Preempt {
			t.Errorf("variant %q: its jobs allow preemption, its queue does not", v.name)
		}
	}
}

// TestOneDefault: the tables show the agent's default queue.
func TestOneDefault(t *testing.T) {
	c := model.DefaultConfig()
	if d := cmp.Diff(queue.Default(), c.Queue, cmpopts.IgnoreFields(pal.Policy{}, "Sample")); d != "" {
		t.Errorf("the agent's queue (-default +agent):\n%s", d)
	}
	if want := queue.Default().Placement.Name; c.Placement != want {
		t.Errorf("the agent places by %s, the default is %s", c.Placement, want)
	}
	ours := 0
	for _, v := range variants() {
		if v.name != "ours with preemption" && v.name != "ours without preemption" {
			continue
		}
		ours++
		if d := cmp.Diff(queue.Default(), v.queue, cmpopts.IgnoreFields(pal.Policy{}, "Sample")); d != "" {
			t.Errorf("variant %q (-default +variant):\n%s", v.name, d)
		}
	}
	if ours != 2 {
		t.Errorf("%d of our two variants are in the list", ours)
	}
}

// TestDefaultsReachTheAims: the default policy reaches its aims on the evaluation workloads
// (docs/results/README.md). With preemption, makespan and longest JCT may be above the aim by 4 %,
// because they vary that much by chance.
func TestDefaultsReachTheAims(t *testing.T) {
	dir := paldata.Dir()
	if dir == "" {
		t.Skip("PAL_DATA is not set: the evaluation workloads are missing")
	}
	in, err := readInputs(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, aim := range []struct {
		preempt                           bool
		average, worst, makespan, longest float64
	}{{false, 0.28, 0.80, 1.05, 9}, {true, 0.12, 0.27, 1.04, 1.04}} {
		r := &result{scenario: in.scenarios()[0], variant: variant{queue: queue.Default(), preempt: aim.preempt}}
		if err := in.measure(r); err != nil {
			t.Fatal(err)
		}
		if r.AvgJCT > aim.average || r.Worst > aim.worst || r.Makespan > aim.makespan || r.Longest > aim.longest {
			t.Errorf("preempting %v: average %v, worst %v, makespan %v, longest %v", aim.preempt, r.AvgJCT, r.Worst, r.Makespan, r.Longest)
		}
	}
}
