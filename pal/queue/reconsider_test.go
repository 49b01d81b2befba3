// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
)

// A waiting gang starts on a node that it can use now, even if it could not use the node when it
// was submitted.
func TestReconsider(t *testing.T) {
	q, err := New(Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := pal.NewCluster([]pal.Node{{ID: "n", Name: "n", Groups: []pal.DeviceGroup{{Name: "gpu", GPUs: []pal.GPU{{ID: "g"}}}}}}, pal.TwoTier(1.5))
	if err != nil {
		t.Fatal(err)
	}
	g := pal.SingleGPUs("j", pal.ClassA, 1)
	g.MemberSets[0].Eligible = []bool{false}
	if err := q.Submit(0, Job{ID: "j", Gang: g}); err != nil {
		t.Fatal(err)
	}
	if as := q.Decide(0, c); len(as) > 0 {
		t.Fatalf("it starts where it may not run: %v", as)
	}
	q.Reconsider(func(id string, g pal.Gang) pal.Gang {
		g.MemberSets = []pal.MemberSet{g.MemberSets[0]}
		g.MemberSets[0].Eligible = []bool{id == "j"}
		return g
	})
	if as := q.Decide(1, c); len(as) != 1 || as[0].Kind != Start || as[0].Job != "j" {
		t.Errorf("after the node came back: %v", as)
	}
}
