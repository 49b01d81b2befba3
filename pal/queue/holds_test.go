// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"slices"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// TestHoldsWhileItStops: a gang that is stopped for another gang loses its members one by one. The
// other gang starts only when all members have ended. The work between two ends counts at the cost
// that the gang had at that time.
func TestHoldsWhileItStops(t *testing.T) {
	c, err := pal.NewCluster(testNodes(1, "0"), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	q := newTestLine(t, Options{Order: FIFO, JobPriority: true, Preempt: true, Placement: pal.Policy{Name: pal.PAL}})
	g := pal.SingleGPUs("victim", pal.ClassA, 4)
	all := pal.Predict(c, g, []pal.Member{{GPUs: []int{0}}, {GPUs: []int{1}}, {GPUs: []int{2}}, {GPUs: []int{3}}})
	if all.Cost() != 2 {
		t.Fatalf("its cost is %v, want 2: GPU 0 is slow", all.Cost())
	}
	c.Take(g, all)
	if err := q.Restore(Job{ID: "victim", Gang: g, Preemptible: true}, all, 0); err != nil {
		t.Fatal(err)
	}
	if err := q.Submit(0, Job{ID: "urgent", Gang: pal.SingleGPUs("urgent", pal.ClassA, 4), Priority: 9}); err != nil {
		t.Fatal(err)
	}
	now := 2 * time.Hour
	if got := q.Decide(now, c); len(got) != 1 || got[0].Kind != Preempt {
		t.Fatalf("%v, want a preemption", got)
	}
	for left := 3; left >= 0; left-- { // the member on the slow GPU ends first
		now += time.Minute
		part := pal.Placement{PMScore: 1, Penalty: 1, Members: all.Members[4-left:]}
		c.Release(g, pal.Placement{Members: all.Members[3-left : 4-left]})
		q.SetPlacement(now, "victim", part)
		if left == 0 {
			break
		}
		if got := q.Decide(now, c); len(got) > 0 {
			t.Errorf("%d members still end: %v", left, got)
		}
		if got := q.entries["victim"].placement.GPUs(); !slices.Equal(got, part.GPUs()) {
			t.Errorf("%d members still end: the gang is on %v", left, got)
		}
	}
	q.Stopped(now, "victim")
	if got := q.Decide(now, c); len(got) != 1 || got[0].Kind != Start || got[0].Job != "urgent" {
		t.Errorf("all have ended: %v", got)
	}
	// It ran for two hours and a minute at cost 2, and for three minutes at cost 1.
	if got, want := q.entries["victim"].earlier.work, (121*time.Minute)/2+3*time.Minute; got != want {
		t.Errorf("it has done %v, want %v", got, want)
	}
}

// TestHoldsWhileItShrinks: an elastic gang shrinks until only the target number of members is left.
func TestHoldsWhileItShrinks(t *testing.T) {
	c, err := pal.NewCluster(testNodes(1, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	q := newTestLine(t, Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}})
	g := pal.Gang{ID: "elastic", Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: 4, GPUs: 1}}}
	at := func(n int) pal.Placement {
		pl := pal.Placement{PMScore: 1, Penalty: 1}
		for u := range n {
			pl.Members = append(pl.Members, pal.Member{GPUs: []int{u}})
		}
		return pl
	}
	c.Take(g, at(4))
	if err := q.Restore(Job{ID: "elastic", Gang: g, Least: 1}, at(4), 0); err != nil {
		t.Fatal(err)
	}
	if err := q.Submit(0, Job{ID: "waits", Gang: pal.SingleGPUs("waits", pal.ClassA, 2)}); err != nil {
		t.Fatal(err)
	}
	if got := q.Decide(time.Hour, c); len(got) != 1 || got[0].Kind != Resize || len(got[0].Members) != 2 {
		t.Fatalf("%v, want a shrink by two members", got)
	}
	for _, left := range []int{3, 2} {
		if size, _ := q.SizeOf("elastic"); len(q.Decide(time.Hour, c)) > 0 || size.Members != left+1 {
			t.Errorf("%d members are left, but it still shrinks; size %+v", left+1, size)
		}
		c.Release(g, pal.Placement{Members: at(left + 1).Members[left:]})
		q.SetPlacement(time.Hour, "elastic", at(left))
	}
	if got := q.Decide(time.Hour, c); len(got) != 1 || got[0].Job != "waits" {
		t.Errorf("two are left: %v", got)
	}
}

// TestHoldsOfOneThatMoved: if a gang that was once moved is stopped for another gang, the other
// gang starts only when all members have ended.
func TestHoldsOfOneThatMoved(t *testing.T) {
	c, err := pal.NewCluster(testNodes(1, "0"), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	q := newTestLine(t, Options{Order: FIFO, JobPriority: true, Preempt: true, Migrate: true, Placement: pal.Policy{Name: pal.PAL}})
	g := pal.SingleGPUs("victim", pal.ClassA, 2)
	slow := pal.Predict(c, g, []pal.Member{{GPUs: []int{0}}, {GPUs: []int{1}}})
	c.Take(g, slow)
	if err := q.Restore(Job{ID: "victim", Gang: g, Estimate: 10 * time.Hour, Preemptible: true, Migratable: true}, slow, 0); err != nil {
		t.Fatal(err)
	}
	moves := q.Decide(time.Hour, c)
	if len(moves) != 1 || moves[0].Kind != Migrate {
		t.Fatalf("%v, want a move", moves)
	}
	on := moves[0].Placement
	c.Release(g, slow)
	c.Take(g, on)
	q.Started(time.Hour, "victim", on)
	if err := q.Submit(2*time.Hour, Job{ID: "urgent", Gang: pal.SingleGPUs("urgent", pal.ClassA, 4), Priority: 9}); err != nil {
		t.Fatal(err)
	}
	if got := q.Decide(2*time.Hour, c); len(got) != 1 || got[0].Kind != Preempt {
		t.Fatalf("%v, want a preemption", got)
	}
	c.Release(g, pal.Placement{Members: on.Members[1:]})
	q.SetPlacement(2*time.Hour, "victim", pal.Placement{PMScore: 1, Penalty: 1, Members: on.Members[:1]})
	if got := q.Decide(2*time.Hour, c); len(got) > 0 {
		t.Errorf("a member still ends: %v", got)
	}
}

// TestSetPlacementAgain: a second report of the same placement changes nothing.
func TestSetPlacementAgain(t *testing.T) {
	q := newTestLine(t, Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}})
	g := pal.SingleGPUs("runs", pal.ClassA, 2)
	at := pal.Placement{PMScore: 1, Penalty: 1, Members: []pal.Member{{GPUs: []int{1}}, {GPUs: []int{0}}}}
	if err := q.Restore(Job{ID: "runs", Gang: g, Estimate: time.Hour}, at, 0); err != nil {
		t.Fatal(err)
	}
	was := *q.entries["runs"]
	slices.Reverse(at.Members)
	q.SetPlacement(time.Minute, "runs", at)
	if is := q.entries["runs"]; is.startedAt != was.startedAt || is.earlier.ran != was.earlier.ran {
		t.Errorf("started at %v with %v behind it, was at %v with %v", is.startedAt, is.earlier.ran, was.startedAt, was.earlier.ran)
	}
	at.Members = at.Members[:1]
	if q.SetPlacement(time.Minute, "runs", at); q.entries["runs"].startedAt != time.Minute {
		t.Error("it is on fewer GPUs, but nothing has changed")
	}
}
