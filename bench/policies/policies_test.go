// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"testing"

	"github.com/nomad-pal/nomad-pal/bench/paldata"
	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// TestVariants: every variant has a name of its own and options that the queue
// accepts.
func TestVariants(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range variants() {
		if seen[v.name] {
			t.Errorf("variant %q is there twice", v.name)
		}
		seen[v.name] = true
		if v.nomad {
			continue
		}
		if _, err := queue.New(v.queue); err != nil {
			t.Errorf("variant %q: %v", v.name, err)
		}
		if v.queue.Preempt != v.preempt {
			t.Errorf("variant %q: its jobs allow preemption: %v, its queue: %v", v.name, v.preempt, v.queue.Preempt)
		}
	}
}

// TestDefaultsReachTheAims are the aims of the policy on the evaluation
// workloads (bench/README.md).
func TestDefaultsReachTheAims(t *testing.T) {
	dir := paldata.Dir()
	if dir == "" {
		t.Skip("PAL_DATA is not set: the evaluation workloads are not there")
	}
	in, err := readInputs(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, aim := range []struct {
		preempt                           bool
		average, worst, makespan, longest float64
	}{{false, 0.28, 0.80, 1.05, 9}, {true, 0.12, 0.27, 1.0, 1.0}} {
		r := &result{scenario: in.scenarios()[0], variant: variant{queue: queue.Default(aim.preempt), preempt: aim.preempt}}
		if err := in.measure(r); err != nil {
			t.Fatal(err)
		}
		if r.AvgJCT > aim.average || r.Worst > aim.worst || r.Makespan > aim.makespan || r.Longest > aim.longest {
			t.Errorf("preempting %v: average %v, worst %v, makespan %v, longest %v", aim.preempt, r.AvgJCT, r.Worst, r.Makespan, r.Longest)
		}
	}
}
