// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// The queue counts by tenant what stops cost and saved. The next queue gets these counts.
func TestStopsAreCounted(t *testing.T) {
	q := newTestLine(t, Default())
	c, err := pal.NewCluster(testNodes(1, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	// Two gangs of 2 GPUs each have run for an hour; one of them writes checkpoints. A gang of 4
	// GPUs arrives.
	for i, id := range []string{"a", "b"} {
		pl := pal.Placement{PMScore: 1, Penalty: 1}
		for k := range 2 {
			pl.Members = append(pl.Members, pal.Member{GPUs: []int{2*i + k}})
		}
		j := Job{ID: id, Tenant: "long", Gang: pal.SingleGPUs(id, pal.ClassA, 2), Preemptible: true, RestartCost: time.Minute, Estimate: time.Duration(i+4) * time.Hour}
		if id == "b" {
			j.Checkpoint = time.Hour
		}
		c.Take(j.Gang, pl)
		if err := q.Restore(j, pl, 0); err != nil {
			t.Fatal(err)
		}
	}
	now := 61 * time.Minute // the first interval begins one minute after the start, so the checkpoint is written after 61 minutes
	if err := q.Submit(now, Job{ID: "short", Tenant: "quick", Gang: pal.SingleGPUs("short", pal.ClassA, 4), Submitted: now, Estimate: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if as := q.Decide(now, c); len(as) != 2 || as[0].Kind != Preempt || as[1].Kind != Preempt {
		t.Fatalf("decided %v", as)
	}
	if got := q.Stops(); got != (Stops{}) {
		t.Errorf("before they have stopped it was %+v", got)
	}
	for _, id := range []string{"a", "b"} {
		q.Stopped(now+10*time.Minute, id)
	}
	// Each gang has 2 GPUs. The gang with checkpoints lost 11 minutes: the restart, and 10 minutes
	// since its checkpoint. The other gang lost only the restart, one minute. The gang that would
	// have ended last would have ended at 5 h.
	want := Stops{Stops: 2, LostGPUSeconds: 2*60 + 2*11*60, SavedSeconds: (5*time.Hour - now - 10*time.Minute).Seconds()}
	if got := q.Stops(); got != want {
		t.Errorf("stops %+v, want %+v", got, want)
	}
	for id, want := range map[string]Stops{"a": {Stops: 1, LostGPUSeconds: 2 * 60}, "b": {Stops: 1, LostGPUSeconds: 2 * 11 * 60}, "short": {SavedSeconds: want.SavedSeconds}, "none": {}} {
		if got := StopsOf(q, id); got != want {
			t.Errorf("stops of %s: %+v, want %+v", id, got, want)
		}
	}
	q.Stopped(now+11*time.Minute, "a") // the gang already waits, so this is no stop
	for _, u := range q.Tenants(now) {
		if (u.Stops.Stops == 2) != (u.Tenant == "long") || (u.Stops.SavedSeconds > 0) != (u.Tenant == "quick") {
			t.Errorf("tenant %s: %+v", u.Tenant, u.Stops)
		}
	}
	next := newTestLine(t, Default())
	next.RememberUsage(now, q.Usage(now))
	if got := next.Stops(); got != want {
		t.Errorf("the next queue gets %+v", got)
	}
	next.RememberUsage(now, []Usage{{Tenant: "long", Stops: Stops{Stops: -1}}})
	if got := next.Stops(); got != (Stops{}) {
		t.Errorf("impossible numbers are accepted: %+v", got)
	}
}

// Only a part of a preemptible gang's GPU time counts for its place in the queue
// ([Options.Credit]).
func TestCredit(t *testing.T) {
	for credit, want := range map[float64]string{0: "shorter", 0.9: "shorter", DefaultCredit: "stoppable"} {
		o := Default()
		o.Credit = credit
		q := newTestLine(t, o)
		for _, j := range []Job{
			{ID: "stoppable", Gang: pal.SingleGPUs("stoppable", pal.ClassA, 4), Estimate: 2 * time.Hour, Preemptible: true},
			{ID: "shorter", Gang: pal.SingleGPUs("shorter", pal.ClassA, 4), Estimate: time.Hour},
		} {
			if err := q.Submit(0, j); err != nil {
				t.Fatal(err)
			}
		}
		c, err := pal.NewCluster(testNodes(1, ""), pal.TwoTier(1.7))
		if err != nil {
			t.Fatal(err)
		}
		if as := q.Decide(0, c); len(as) != 1 || as[0].Job != want {
			t.Errorf("credit %v: decided %v, want %s to start", credit, as, want)
		}
	}
	for _, bad := range []float64{-0.1, 1.1, math.NaN()} {
		o := Default()
		if o.Credit = bad; func() error { _, err := New(o); return err }() == nil {
			t.Errorf("credit %v is accepted", bad)
		}
	}
}

// If a gang that is not preemptible looks for victims, only a part of the GPU time of running
// preemptible gangs counts. But if the gang that looks for victims is short, all of their GPU time
// counts.
func TestCreditOfWhoIsStopped(t *testing.T) {
	for _, c := range []struct {
		what   string
		asks   Job
		credit float64
		want   Kind // 0: none
	}{
		{"without credit", Job{Estimate: time.Hour}, 0, Preempt},
		{"with it", Job{Estimate: time.Hour}, DefaultCredit, 0},
		{"a short one, with it", Job{Estimate: 10 * time.Minute}, DefaultCredit, Preempt},
		{"one that may be stopped itself", Job{Estimate: time.Hour, Preemptible: true}, DefaultCredit, Preempt},
	} {
		o := Default()
		o.Credit = c.credit
		q := newTestLine(t, o)
		cl, err := pal.NewCluster(testNodes(1, ""), pal.TwoTier(1.7))
		if err != nil {
			t.Fatal(err)
		}
		runs := Job{ID: "runs", Gang: pal.SingleGPUs("runs", pal.ClassA, 4), Estimate: 4 * time.Hour, Preemptible: true}
		if err := q.Submit(0, runs); err != nil {
			t.Fatal(err)
		}
		for _, a := range q.Decide(0, cl) {
			cl.Take(runs.Gang, a.Placement)
			q.Started(0, a.Job, a.Placement)
		}
		c.asks.ID, c.asks.Gang, c.asks.Submitted = "asks", pal.SingleGPUs("asks", pal.ClassA, 4), time.Minute
		if err := q.Submit(time.Minute, c.asks); err != nil {
			t.Fatal(err)
		}
		got := Kind(0)
		for _, a := range q.Decide(time.Minute, cl) {
			got = a.Kind
		}
		if got != c.want {
			t.Errorf("%s: decided %v, want %v", c.what, got, c.want)
		}
	}
}

// If a gang on a part of a shared GPU is stopped, it loses this part of the GPU's time.
func TestStopsOfParts(t *testing.T) {
	e := &entry{job: Job{Gang: pal.Gang{Share: 0.5}, RestartCost: time.Minute}, state: stopping, gpus: 2, of: &namespace{}, stopsFor: "by"}
	q := newQueue(t)
	q.entries["by"] = &entry{promised: &promised{}, of: &namespace{}}
	if countStop(q, e, 0); e.earlier.stops.LostGPUSeconds != 60 {
		t.Errorf("two halves of GPUs lost %v GPU seconds in a minute, want 60", e.earlier.stops.LostGPUSeconds)
	}
}
