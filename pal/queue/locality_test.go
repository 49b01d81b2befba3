// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
)

// While its nodes are unavailable, a gang's least cost is unknown. When the nodes are back, the
// unknown cost must not count as zero, because the gang would then wait for GPUs that never come.
func TestLeastCostWhileItDoesNotFit(t *testing.T) {
	c, err := pal.NewCluster(testNodes(2, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	q, err := New(Default())
	if err != nil {
		t.Fatal(err)
	}
	e, err := q.newEntry(Job{ID: "j", Tenant: "t", Gang: pal.Gang{ID: "j", Class: pal.ClassB, MemberSets: []pal.MemberSet{{Members: 1, GPUs: 1}}}})
	if err != nil {
		t.Fatal(err)
	}
	away := func(yes bool) {
		for u := range c.NumGPUs() {
			c.SetHealth(u, pal.Health{Unhealthy: yes})
		}
	}
	away(true)
	if cost := q.newPass(0, c).leastCost(e); !math.IsInf(cost, 1) {
		t.Errorf("no node is available: its cost is %g", cost)
	}
	away(false)
	if cost := q.newPass(0, c).leastCost(e); cost < 1 || math.IsInf(cost, 1) {
		t.Errorf("all nodes are back: its cost is %g", cost)
	}
}

// A gang does not wait for GPUs that jobs outside the queue hold, but uses an outlier instead. When
// these jobs have released the GPUs, gangs wait for them again.
func TestOthersTakeGPUs(t *testing.T) {
	w := &world{gangs: map[string]pal.Gang{}, places: map[string]pal.Placement{}}
	var err error
	if w.queue, err = New(Options{Order: FIFO, OutlierThreshold: DefaultOutlierThreshold, Placement: pal.Policy{Name: pal.PAL}}); err != nil {
		t.Fatal(err)
	}
	if w.cluster, err = pal.NewCluster(testNodes(1, "0"), pal.TwoTier(1.7)); err != nil { // GPU 0 is an outlier
		t.Fatal(err)
	}
	then := func(what, want string) {
		t.Helper()
		if got := w.decide(); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	for _, job := range []string{"ours 1 est=60", "gang 3 est=60"} {
		if err := w.submit(job); err != nil {
			t.Fatal(err)
		}
	}
	then("nobody else is there", "start ours on 1\n")
	others := func(yes bool) {
		w.cluster.SetTaken(2, yes)
	}
	others(true)
	then("others have one", "nothing\n")
	others(false)
	then("others have given it back, ours ends some time", "nothing\n")
	others(true)
	w.release("ours")
	w.queue.Finished(w.now, "ours")
	then("ours has ended", "start gang on 0,1,3\n")
}
