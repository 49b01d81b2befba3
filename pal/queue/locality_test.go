// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
)

// What a gang would cost on an empty cluster is not known while its nodes are away, and
// it is not taken for nothing afterwards: it would wait for what never comes.
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
			c.SetHealth(u, yes, false)
		}
	}
	p := &pass{Queue: q, c: c, ever: map[*kind]*answer{}}
	away(true)
	if cost := p.leastCost(e); !math.IsInf(cost, 1) {
		t.Errorf("nothing is there: it would cost %g", cost)
	}
	away(false)
	if cost := p.leastCost(e); cost < 1 || math.IsInf(cost, 1) {
		t.Errorf("all is back: it would cost %g", cost)
	}
}
