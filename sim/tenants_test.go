// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

func ofTenant(tenant string, j trace.Job) trace.Job {
	j.Tenant = tenant
	return j
}

// TestUsageByHand: tenant a has used the cluster, so the next GPUs go to b. With a short
// half-life, that usage no longer counts, and they go to a, which came first.
func TestUsageByHand(t *testing.T) {
	jobs := []trace.Job{ofTenant("a", job("a1", "D", 4, 0, 3600)), ofTenant("c", job("c1", "D", 4, 3600, 7200)),
		ofTenant("a", job("a2", "D", 4, 4000, 100)), ofTenant("b", job("b1", "D", 4, 4001, 100))}
	last := func(half time.Duration) string {
		return timeline(t, Config{Cluster: tinyCluster(t), Jobs: jobs, Queue: queue.Options{Order: queue.FIFO,
			Placement: pal.Policy{Name: pal.Packed}, FairShare: true, HalfLife: half}})[4]
	}
	want := map[time.Duration]string{7 * 24 * time.Hour: "10800.0 b1 start [0 1 2 3]", time.Second: "10800.0 a2 start [0 1 2 3]", 0: "10800.0 a2 start [0 1 2 3]"}
	for half, want := range want {
		if got := last(half); got != want {
			t.Errorf("half-life %v: %q, want %q", half, got, want)
		}
	}
}

// tinyCluster is a node of 4 equal GPUs.
func tinyCluster(t *testing.T) *pal.Cluster {
	t.Helper()
	p := Population{Nodes: 1, GPUsPerNode: 4, Scores: make([][pal.NumClasses]pal.PMScore, 4)}
	for i := range p.Scores {
		p.Scores[i] = [pal.NumClasses]pal.PMScore{1, 1, 1, 1}
	}
	c, err := p.Cluster(pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestReclaimByHand: b borrows all four GPUs, and a reclaims its two. The stopped gang of b
// resumes when a has finished, and loses a minute for the restart.
func TestReclaimByHand(t *testing.T) {
	got := timeline(t, Config{Cluster: tinyCluster(t), RestartS: 60, Preemptible: true,
		Jobs: []trace.Job{ofTenant("b", job("b1", "D", 2, 0, 5000)), ofTenant("b", job("b2", "D", 2, 10, 5000)), ofTenant("a", job("a1", "D", 2, 1000, 100))},
		Queue: queue.Options{Order: queue.FIFO, Backfill: queue.BackfillReserved, Preempt: true, Placement: pal.Policy{Name: pal.Packed},
			Tenants: map[string]queue.Tenant{"a": {Quota: 2}, "b": {Quota: 2}}}})
	if d := cmp.Diff([]string{"0.0 b1 start [0 1]", "10.0 b2 start [2 3]", "1000.0 b2 preempt [2 3]", "1000.0 a1 start [2 3]", "1100.0 a1 finish [2 3]",
		"1100.0 b2 resume [2 3]", "5000.0 b1 finish [0 1]", "5170.0 b2 finish [2 3]"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
