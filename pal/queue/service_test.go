// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// A service that would shut out an earlier gang on one node starts on another node. Half of each
// node is free. The gang needs a whole node, and the second node runs another service.
func TestServiceSparesEarlierGang(t *testing.T) {
	q := newTestLine(t, Options{Order: FIFO, Backfill: BackfillBestEffort, Placement: pal.Policy{Name: pal.PAL}})
	c, err := pal.NewCluster(testNodes(2, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	one := func(id string, gpus int) pal.Gang {
		return pal.Gang{ID: id, Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: 1, GPUs: gpus}}}
	}
	for node, j := range []Job{{ID: "batch", Estimate: 10 * time.Hour}, {ID: "service", Endless: true}} {
		j.Gang = one(j.ID, 2)
		pl := pal.Predict(c, j.Gang, []pal.Member{{Group: node, GPUs: []int{4 * node, 4*node + 1}}})
		c.Take(j.Gang, pl)
		if err := q.Restore(j, pl, 0); err != nil {
			t.Fatal(err)
		}
	}
	for i, j := range []Job{{ID: "gang", Gang: one("gang", 4), Estimate: time.Hour}, {ID: "later", Gang: one("later", 1), Endless: true}} {
		j.Submitted = time.Duration(i + 1)
		if err := q.Submit(0, j); err != nil {
			t.Fatal(err)
		}
	}
	as := q.Decide(time.Minute, c)
	if len(as) != 1 || as[0].Job != "later" || as[0].Placement.Members[0].Group != 1 {
		t.Errorf("decided %+v, want the later service on the second node", as)
	}
}
