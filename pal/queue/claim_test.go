// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// GPUs that are freed for a gang go to this gang, even if a gang of a higher priority waits by then.
func TestFreedGPUsGoToTheirGang(t *testing.T) {
	q, err := New(Options{Order: FIFO, JobPriority: true, Backfill: BackfillReserved, Preempt: true, Placement: pal.Policy{Name: pal.PAL}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := pal.NewCluster(testNodes(1, ""), pal.TwoTier(1))
	if err != nil {
		t.Fatal(err)
	}
	decide := func(now time.Duration, want string) {
		t.Helper()
		got := ""
		for _, a := range q.Decide(now, c) {
			got += fmt.Sprintln(a.Kind, a.Job)
			if a.Kind == Start {
				c.Take(q.entries[a.Job].job.Gang, a.Placement)
				q.Started(now, a.Job, a.Placement)
			}
		}
		if got != want {
			t.Fatalf("at %v: %q, want %q", now, got, want)
		}
	}
	submit := func(now time.Duration, id string, priority int, stops bool) {
		t.Helper()
		j := Job{ID: id, Gang: pal.SingleGPUs(id, pal.ClassA, 4), Submitted: now, Priority: priority, Preemptible: stops, Estimate: time.Hour}
		if err := q.Submit(now, j); err != nil {
			t.Fatal(err)
		}
	}
	submit(0, "young", 10, true)
	decide(0, "start young\n")
	submit(time.Minute, "wants", 50, false)
	waits := func(r reason.Kind, stopping ...string) {
		t.Helper()
		if w := q.Waiting(time.Minute, c)[0]; w.Reason != r || !slices.Equal(w.Stopping, stopping) {
			t.Fatalf("it waits for %q, while %q stop", w.Reason, w.Stopping)
		}
	}
	waits(reason.GPUs) // no gang is stopped yet
	decide(time.Minute, "preempt young\n")
	waits(reason.Stopping, "young")
	q.NotStopped("young")
	waits(reason.GPUs)
	decide(time.Minute, "preempt young\n")
	submit(65*time.Second, "big", 80, false)
	decide(65*time.Second, "")
	c.Release(q.entries["young"].job.Gang, q.entries["young"].placement)
	q.Stopped(85*time.Second, "young")
	decide(85*time.Second, "start wants\n")
	if w := q.Waiting(86*time.Second, c); len(w) != 2 || w[0].Job != "big" {
		t.Errorf("wait: %+v", w)
	}
}
