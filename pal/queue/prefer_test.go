// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// A gang that prefers slow GPUs does not wait for fast ones. An otherwise equal gang without a
// preference waits for fast GPUs.
func TestPreferenceIsAKindOfItsOwn(t *testing.T) {
	for _, anywhere := range [][]bool{{true, true}, nil} {
		prefersSlow(t, anywhere)
	}
}

// prefersSlow submits gangs with and without a preference. `anywhere` makes all GPUs eligible.
func prefersSlow(t *testing.T, anywhere []bool) {
	t.Helper()
	q, err := New(Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}, LocalityWait: true, Backfill: BackfillReserved})
	if err != nil {
		t.Fatal(err)
	}
	var nodes []pal.Node
	for i, score := range []pal.PMScore{1, 2} {
		u := pal.GPU{ID: fmt.Sprint(i)}
		for k := range u.Scores {
			u.Scores[k], u.Binned[k] = score, score
		}
		nodes = append(nodes, pal.Node{ID: u.ID, Name: u.ID, Groups: []pal.DeviceGroup{{Name: "gpu", GPUs: []pal.GPU{u}}}})
	}
	c, err := pal.NewCluster(nodes, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	gang := func(id string, prefer ...[]bool) pal.Gang {
		g := pal.SingleGPUs(id, pal.ClassA, 1)
		g.MemberSets[0].Eligible, g.MemberSets[0].Prefer = anywhere, prefer
		return g
	}
	submit := func(g pal.Gang) {
		if err := q.Submit(0, Job{ID: g.ID, Gang: g, Estimate: time.Duration(len(g.ID)) * time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	// While the first gang runs, the second waits, because the queue knows its least cost.
	submit(gang("first"))
	first := q.Decide(0, c)
	if len(first) != 1 {
		t.Fatalf("first: %v", first)
	}
	c.Take(gang("first"), first[0].Placement)
	q.Started(0, "first", first[0].Placement)
	submit(gang("second"))
	if as := q.Decide(0, c); len(as) > 0 {
		t.Fatalf("second does not wait for the fast GPU: %v", as)
	}
	c.Release(gang("first"), first[0].Placement)
	q.Finished(time.Second, "first")
	q.Removed(time.Second, "second")
	submit(gang("slow", []bool{false, true}))
	submit(gang("third"))
	starts := map[string]int{}
	for _, a := range q.Decide(2*time.Second, c) {
		starts[a.Job] = a.Placement.GPUs()[0]
	}
	if len(starts) != 2 || starts["slow"] != 1 || starts["third"] != 0 {
		t.Errorf("started on %v, want slow on 1 and third on 0", starts)
	}
}
