// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// in2026 is the time from 1970 to 2026.
const in2026 time.Duration = 56 * 365 * 24 * time.Hour

// century submits five gangs, one behind the other. Each needs all GPUs, or its tenant's whole
// limit, for 100 years. The first gang has run since 2026; century returns the Waits of the others.
func century(t *testing.T, o Options) []Wait {
	t.Helper()
	c, err := pal.NewCluster(testNodes(2, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	o.Order, o.Placement = FIFO, pal.Policy{Name: pal.PAL}
	q := newTestLine(t, o)
	for i := range 5 {
		g := pal.SingleGPUs(fmt.Sprint(i), pal.ClassA, 8)
		if err := q.Submit(in2026, Job{ID: g.ID, Tenant: "t", Gang: g, Estimate: longestRun}); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range q.Decide(in2026, c) {
		c.Take(pal.SingleGPUs(a.Job, pal.ClassA, 8), a.Placement)
		q.Started(in2026, a.Job, a.Placement)
	}
	return q.Waiting(in2026+time.Minute, c)
}

// Gangs that each run for a century are expected to start one after the other, up to the last time
// that a Duration can hold.
func TestExpectAfterCenturies(t *testing.T) {
	limited := Options{Tenants: map[string]Tenant{"t": {MaxJobsPerUser: 1}}}
	for name, o := range map[string]Options{"GPUs": {}, "a limit": limited} {
		last := in2026
		for _, w := range century(t, o) {
			if want := later(last, longestRun/2); w.From < want || w.To < w.From {
				t.Errorf("waiting for %s (%v), %s starts from %v to %v; want %v or later", name, w.Reason, w.Job, w.From, w.To, want)
			}
			last = w.From
		}
	}
}

// Predicted starts are not in the past, even if the ranges are as
// wide as possible and enough GPUs come free only after a century.
func TestForecastOfCenturies(t *testing.T) {
	q := newTestLine(t, Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}})
	if err := q.Submit(in2026, Job{ID: "j", Gang: pal.SingleGPUs("j", pal.ClassA, 1)}); err != nil {
		t.Fatal(err)
	}
	q.forecasts.low, q.forecasts.high = -mostFactor, mostFactor
	r := q.forecasts.rangeOf(in2026, in2026+longestRun, in2026)
	if r.from < in2026 || r.to < r.from {
		t.Errorf("from %v to %v, now %v", r.from, r.to, in2026)
	}
}

// The end of a run is not before its start, even if the run begins in centuries and takes a
// century.
func TestReachOfCenturies(t *testing.T) {
	q := newTestLine(t, Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}})
	if err := q.Submit(in2026, Job{ID: "j", Gang: pal.SingleGPUs("j", pal.ClassA, 1), Estimate: longestRun}); err != nil {
		t.Fatal(err)
	}
	p := q.newPass(in2026, nil)
	e, at := q.entries["j"], in2026+2*longestRun
	p.startsAt = at
	if end := p.reach(e, 1); end < at {
		t.Errorf("it reaches from %v to %v", at, end)
	}
	if end := e.endOn(pal.Placement{PMScore: 1, Penalty: 1}, at); end < at {
		t.Errorf("it ends at %v, before it starts at %v", end, at)
	}
}

// An elastic gang that runs for centuries does not grow onto GPUs that are kept for the head.
func TestGrowthOfCenturies(t *testing.T) {
	nodes := testNodes(2, "")
	for i := range nodes[0].Groups[0].GPUs {
		u := &nodes[0].Groups[0].GPUs[i]
		u.Scores[0], u.Binned[0] = 5, 5
	}
	c, err := pal.NewCluster(nodes, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	q := newTestLine(t, Options{Order: FIFO, Backfill: BackfillReserved, Placement: pal.Policy{Name: pal.PAL}})
	run := func(j Job, group int, gpus ...int) {
		at := pal.Placement{PMScore: 5, Penalty: 1, Members: []pal.Member{{Group: group, GPUs: gpus}}}
		c.Take(j.Gang, at)
		if err := q.Restore(j, at, in2026); err != nil {
			t.Fatal(err)
		}
	}
	grows := pal.Gang{ID: "grows", Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: 4, GPUs: 1}}}
	run(Job{ID: "grows", Gang: grows, Least: 1, Estimate: longestRun}, 0, 0)
	run(Job{ID: "ends", Gang: pal.SingleGPUs("ends", pal.ClassA, 4), Estimate: time.Hour}, 1, 4, 5, 6, 7)
	if err := q.Submit(in2026, Job{ID: "head", Submitted: in2026, Gang: pal.SingleGPUs("head", pal.ClassA, 7), Estimate: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if as := q.Decide(in2026+time.Minute, c); len(as) > 0 {
		t.Errorf("%v", as)
	}
}

// The level of a gang on a third of a GPU changes after three quanta. If that is centuries away,
// the queue does not compute the level again at once, and then again and again.
func TestLevelOfCenturies(t *testing.T) {
	q := newTestLine(t, Options{Order: LAS, Preempt: true, Quantum: longestRun, Placement: pal.Policy{Name: pal.PAL}})
	g := pal.SingleGPUs("j", pal.ClassA, 1)
	g.Share = 0.35
	if err := q.Restore(Job{ID: "j", Gang: g, Preemptible: true}, pal.Placement{PMScore: 1, Penalty: 1}, in2026); err != nil {
		t.Fatal(err)
	}
	if at := q.nextLevel(q.entries["j"], in2026); at < in2026+2*longestRun {
		t.Errorf("the level changes at %v, now %v", at, in2026)
	}
}
