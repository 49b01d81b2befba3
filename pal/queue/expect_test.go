// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// A gang for which enough GPUs are free, but not where it could use them, is not expected
// to start now: nothing is different before some run ends.
func TestExpectScattered(t *testing.T) {
	c, err := pal.NewCluster(testNodes(2, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	q, err := New(Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}})
	if err != nil {
		t.Fatal(err)
	}
	submit := func(id string, gpus int) {
		g := pal.Gang{ID: id, Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: 1, GPUs: gpus}}}
		if err := q.Submit(0, Job{ID: id, Gang: g, Estimate: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	submit("a", 3)
	submit("b", 3)
	for _, a := range q.Decide(0, c) {
		c.Take(pal.Gang{Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: 1, GPUs: 3}}}, a.Placement)
		q.Started(0, a.Job, a.Placement)
	}
	submit("c", 2)
	submit("d", 1)
	ws := q.Waiting(time.Minute, c)
	if len(ws) != 2 || ws[0].Reason != ReasonScattered || ws[0].From < 59*time.Minute || ws[0].To < ws[0].From {
		t.Errorf("%+v", ws)
	}
}
