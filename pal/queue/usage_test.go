// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Each GPU in use adds an hour to the tenant's usage, until it is released.
func TestChargeOfGPUsInUse(t *testing.T) {
	w := modelsWorld(t)
	w.queue.opt.FairShare = true
	w.submitAt(t, "runs", 0.25, time.Hour)
	w.cluster.SetTaken(1, true)
	w.queue.opt.LocalityWait = false
	if got := w.decide(); got != "start runs on b\n" {
		t.Fatal(got)
	}
	of := w.queue.entries["runs"].of.tenant
	if got := fairOf(w.queue, of, w.now); got != entryCharge.Seconds() {
		t.Errorf("one GPU counts for %v s, want %v", got, entryCharge.Seconds())
	}
	w.release("runs")
	w.queue.Finished(w.now, "runs")
	if got := fairOf(w.queue, of, w.now); got != 0 {
		t.Errorf("without GPUs, %v s are still counted", got)
	}
}

// One of four parts of a GPU counts as a quarter of a GPU, while a gang holds it and afterwards.
func TestUsageOfParts(t *testing.T) {
	w := modelsWorld(t)
	parts := pal.DeviceGroup{Name: "s", Shared: true, GPUs: []pal.GPU{{ID: "s::0"}, {ID: "s::1"}, {ID: "s::2"}, {ID: "s::3"}}}
	var err error
	if w.cluster, err = pal.NewCluster([]pal.Node{{ID: "n", Name: "n", Groups: []pal.DeviceGroup{parts}}}, pal.TwoTier(1.7)); err != nil {
		t.Fatal(err)
	}
	w.queue.opt.FairShare, w.queue.opt.HalfLife = true, 1e6*time.Hour
	g := pal.SingleGPUs("part", pal.ClassA, 1)
	g.Sharing = &pal.Sharing{Beside: pal.AnyClass}
	w.gangs["part"] = g
	if err := w.queue.Submit(w.now, Job{ID: "part", Tenant: "t", Gang: g}); err != nil {
		t.Fatal(err)
	}
	if got := w.decide(); got != "start part on s::0\n" {
		t.Fatal(got)
	}
	if got := fairOf(w.queue, w.queue.entries["part"].of.tenant, w.now); got != 0.25*entryCharge.Seconds() {
		t.Errorf("a quarter of a GPU counts for %v s, want %v", got, 0.25*entryCharge.Seconds())
	}
	w.now = 4 * time.Hour
	if u := w.queue.TenantUse("t", w.now); math.Abs(u.GPUHours-1) > 1e-3 {
		t.Errorf("a quarter of a GPU for four hours is %v GPU hours, want 1", u.GPUHours)
	}
}

// Parts of a GPU count as fractions in a gang's attained GPU time, in its rank, and in the overdue
// share.
func TestPartsCountForTheirShareInTheQueue(t *testing.T) {
	opt := Default()
	opt.Order, opt.Preempt, opt.Quantum = LAS, true, time.Hour
	q, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	run := func(id string, share float64) *entry {
		g := pal.SingleGPUs(id, pal.ClassA, 2)
		g.Share = share
		if err := q.Restore(Job{ID: id, Gang: g, Preemptible: true}, pal.Placement{PMScore: 1, Penalty: 1, Members: make([]pal.Member, 2)}, 0); err != nil {
			t.Fatal(err)
		}
		return q.entries[id]
	}
	whole, part := run("whole", 0), run("part", 0.25)
	// Levels begin at 1, 4 and 16 GPU hours. A gang on two GPUs reaches them after 0.5, 2 and 8
	// hours, and a gang on two quarters of a GPU after 2, 8 and 32 hours.
	for _, c := range []struct {
		e     *entry
		hours float64
		next  float64
	}{{whole, 0, 0.5}, {whole, 0.5, 2}, {whole, 2, 8}, {part, 0, 2}, {part, 0.5, 2}, {part, 2, 8}, {part, 8, 32}} {
		now := time.Duration(c.hours * float64(time.Hour))
		if got := q.nextLevel(c.e, now).Hours(); got != c.next {
			t.Errorf("%s: after %v hours the next level is reached after %v, want %v", c.e.job.ID, c.hours, got, c.next)
		}
		at := q.nextLevel(c.e, now)
		if before, after := q.levelInOrder(c.e, at-1), q.levelInOrder(c.e, at); after != before+1 {
			t.Errorf("%s: at %v the level goes from %d to %d", c.e.job.ID, at, before, after)
		}
	}
	q.opt.Order = Adaptive
	if w, p := q.area(whole, 0), q.area(part, 0); p != w/4 {
		t.Errorf("two quarters of a GPU rank as %v GPU seconds, two GPUs as %v", p, w)
	}
}

// If an overdue gang runs on parts of GPUs, only these fractions count in the overdue share.
func TestOverdueParts(t *testing.T) {
	c, err := pal.NewCluster([]pal.Node{{ID: "n", Name: "n", Groups: []pal.DeviceGroup{{Name: "s", Shared: true, GPUs: []pal.GPU{{ID: "s::0"}, {ID: "s::1"}, {ID: "s::2"}, {ID: "s::3"}}}}}}, pal.TwoTier(1))
	if err != nil {
		t.Fatal(err)
	}
	q, err := New(Default())
	if err != nil {
		t.Fatal(err)
	}
	g := pal.SingleGPUs("part", pal.ClassA, 1)
	g.Sharing, g.Share = &pal.Sharing{Beside: pal.AnyClass}, 0.25
	if err := q.Submit(0, Job{ID: "part", Gang: g}); err != nil {
		t.Fatal(err)
	}
	starts := q.Decide(0, c)
	if len(starts) != 1 {
		t.Fatal(starts)
	}
	q.entries["part"].wait.granted = true
	c.Take(g, starts[0].Placement)
	q.Started(0, "part", starts[0].Placement)
	q.Decide(0, c)
	if a := q.account; a.gpus != 1 || a.used != 0.25 {
		t.Errorf("overdue gangs have %v of %v GPUs, want a quarter of one", a.used, a.gpus)
	}
	q.Finished(time.Hour, "part")
	if got := q.inTurn(); got != 0 {
		t.Errorf("%v GPUs are left", got)
	}
}

// fairOf returns the value by which fair share compares a tenant now.
func fairOf(q *Queue, t *tenant, now time.Duration) float64 {
	q.count(now)
	return q.fair(t)
}
