// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Each order sorts by what its name says. Three gangs wait that every order sorts in
// another way.
func TestOrders(t *testing.T) {
	t.Parallel()
	const h = time.Hour
	gang := func(gpus int) pal.Gang {
		return pal.Gang{Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: 1, GPUs: gpus}}}
	}
	jobs := []Job{ // in the order in which they begin to wait
		{ID: "c", Gang: gang(1), Submitted: 2, Priority: 90, Estimate: 121 * h, Attained: h},
		{ID: "b", Gang: gang(4), Submitted: 1, Priority: 50, Estimate: 40 * h, Attained: h / 60},
		{ID: "a", Gang: gang(1), Submitted: 0, Priority: 50, Estimate: 100 * h, Attained: 20 * h},
	}
	want := map[Order]string{FIFO: "abc", Priority: "cab", LAS: "bca", SRTF: "bac", Adaptive: "acb", RoundRobin: "cba"}
	for _, order := range Orders() {
		q, err := New(Options{Order: order, Placement: pal.Policy{Name: pal.PAL}})
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
			t.Errorf("%s sorts them %s, want %s", order, got, want[order])
		}
	}
}
