// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// TestElasticByHand: an elastic gang starts with half of its members, and runs at half of its
// speed with them. Each change of their number costs a minute.
func TestElasticByHand(t *testing.T) {
	c, err := pal.NewCluster([]pal.Node{{ID: "n", Groups: []pal.DeviceGroup{{Name: "g", GPUs: []pal.GPU{{ID: "0"}, {ID: "1"}, {ID: "2"}, {ID: "3"}}}}}}, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	wide := job("wide", "A", 4, 0, 1000)
	wide.LeastMembers = 1
	run := Config{Cluster: c, RestartS: 60, Queue: queue.Options{Order: queue.FIFO, Placement: pal.Policy{Name: pal.Packed}}, Estimate: Exact,
		Jobs: []trace.Job{job("first", "A", 2, 0, 1000), wide, job("late", "A", 1, 1200, 100)}}
	got := timeline(t, run)
	if d := cmp.Diff([]string{
		"0.0 first start [0 1]", "0.0 wide start [2 3]",
		"1000.0 first finish [0 1]", "1000.0 wide resume [2 3 0 1]", // 500 s are left
		"1200.0 wide resume [2 3 0]", "1200.0 late start [1]", "1300.0 late finish [1]", // 360 s are left
		"1740.0 wide finish [2 3 0]"}, got); d != "" { // growing again does not pay
		t.Errorf("(-want +got):\n%s", d)
	}
	out, err := run.Run()
	if err != nil {
		t.Fatal(err)
	}
	if out.Resizes != 2 || out.Preemptions != 0 {
		t.Errorf("%d changes of size, %d preemptions; want 2 and 0", out.Resizes, out.Preemptions)
	}
	const worked, all = 2*1000 + 4*1000 + 100., 4 * 1740. // GPU seconds
	if out.Useful != worked/all {
		t.Errorf("useful %v, want %v", out.Useful, worked/all)
	}
}
