// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Each order sorts as its name says. No two orders sort the four gangs in the same way. Gang d has
// no estimate.
func TestOrders(t *testing.T) {
	t.Parallel()
	const h = time.Hour
	gang := func(gpus int) pal.Gang {
		return pal.Gang{Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: 1, GPUs: gpus}}}
	}
	jobs := []Job{ // in the order of their submission
		{ID: "d", Gang: gang(2), Submitted: 3, Priority: 60},
		{ID: "c", Gang: gang(1), Submitted: 2, Priority: 90, Estimate: 121 * h, Attained: h},
		{ID: "b", Gang: gang(4), Submitted: 1, Priority: 50, Estimate: 40 * h, Attained: h / 60},
		{ID: "a", Gang: gang(1), Submitted: 0, Priority: 50, Estimate: 100 * h, Attained: 20 * h},
	}
	for _, c := range []struct {
		prioritized bool
		want        map[Order]string
	}{
		{false, map[Order]string{FIFO: "abcd", LAS: "bdca", SRTF: "dbac", Adaptive: "dacb"}},
		{true, map[Order]string{FIFO: "cdab", LAS: "cdba", SRTF: "cdba", Adaptive: "cdab"}},
	} {
		testOrders(t, jobs, c.prioritized, c.want)
	}
}

func testOrders(t *testing.T, jobs []Job, prioritized bool, want map[Order]string) {
	t.Helper()
	const h = time.Hour
	for _, order := range Orders() {
		q, err := New(Options{Order: order, JobPriority: prioritized, Placement: pal.Policy{Name: pal.PAL}})
		if err != nil {
			t.Fatal(err)
		}
		c, err := pal.NewCluster(testNodes(1, ""), pal.TwoTier(1.7))
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.NumGPUs() {
			c.SetTaken(i, true)
		}
		for i, j := range jobs {
			if err := q.Submit(h+time.Duration(i), j); err != nil {
				t.Fatal(err)
			}
		}
		got := ""
		for _, w := range q.Waiting(2*h, c) {
			got += w.Job
		}
		if got != want[order] {
			t.Errorf("%s, by priority first: %v: sorts them %s, want %s", order, prioritized, got, want[order])
		}
	}
}

// Whatever priorities authors set, the gang with the higher priority goes first and has the better
// level, because no sum overflows.
func TestAbsurdPriorities(t *testing.T) {
	t.Parallel()
	q, err := New(Default())
	if err != nil {
		t.Fatal(err)
	}
	of := func(priority int, rank float64) *entry {
		return &entry{job: Job{Priority: priority}, memo: memo{rank: rank}}
	}
	worst := of(math.MinInt, math.Inf(1))
	for _, better := range []*entry{of(math.MinInt+highestPriority*2, math.Inf(1)), of(0, math.Inf(1)), of(math.MaxInt, math.Inf(1)), of(math.MinInt, 0)} {
		if q.levelNow(better, 0) > q.levelNow(worst, 0) {
			t.Errorf("priority %d, rank %v: level %d is worse than %d", better.job.Priority, better.memo.rank, q.levelNow(better, 0), q.levelNow(worst, 0))
		}
	}
	if q.levelNow(of(1, math.Inf(1)), 0) >= q.levelNow(of(0, 0), 0) {
		t.Error("the longest gang has no better level than the shortest of a lower priority")
	}
}
