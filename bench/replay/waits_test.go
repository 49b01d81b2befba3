// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"fmt"
	"testing"
	"time"
)

// An overloaded hour is in the middle of the workload, in order. It has the requested amount of
// work, and its jobs have their own ids.
func TestOverload(t *testing.T) {
	t.Parallel()
	job := func(i int, at time.Duration) Job {
		return Job{ID: fmt.Sprint(i), Allocations: 2, GPUsEach: 2, Submit: at, Iterations: 10, Iteration: time.Second}
	}
	var base, others []Job
	for i := range 9 {
		base, others = append(base, job(i, time.Duration(i)*time.Minute)), append(others, job(i, time.Duration(i)*time.Hour))
	}
	all := Overload(base, others, time.Minute, 100*time.Second) // 40 GPU seconds each
	ids, added := map[string]bool{}, 0
	for i, j := range all {
		if i > 0 && j.Submit < all[i-1].Submit {
			t.Errorf("%s at %v comes after %v", j.ID, j.Submit, all[i-1].Submit)
		}
		if len(j.ID) > 1 {
			added++
			if j.Submit < 3*time.Minute || j.Submit >= 4*time.Minute {
				t.Errorf("%s is submitted at %v, not in the fourth minute", j.ID, j.Submit)
			}
		}
		ids[j.ID] = true
	}
	if added != 3 || len(all) != 12 || len(ids) != 12 {
		t.Errorf("%d jobs, %d of them added, with %d ids; want 12, 3, 12", len(all), added, len(ids))
	}
}

// Three gangs of two GPUs on a cluster of two: the second waits for the first and is overdue, the
// third does not finish. The promise is defined in the package comment of pal/queue.
func TestWaits(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0) }
	job := Job{Allocations: 2, GPUsEach: 1}
	r := &Result{Took: 50 * time.Second, Jobs: []JobResult{
		{Job: job, SubmittedAt: at(0), FinishedAt: at(20), RunTime: 19 * time.Second},
		{Job: job, SubmittedAt: at(5), FinishedAt: at(40), RunTime: 20 * time.Second},
		{Job: job, SubmittedAt: at(41)},
		{Job: job}, // never submitted
	}}
	got := r.Waits(10*time.Second, 0.5, 2)
	// The longest run is 20 s, so a turn takes 30 s. The second gang's bound is 10 s, its own turn,
	// one turn for the first gang, and (30 + 20) × 2 / (0.5 × 2) s until the share has paid for the
	// first.
	promised := (10 + 30 + 30 + 100) * time.Second
	want := Waits{Avg: 25 * time.Second / 3, P99: 9 * time.Second, Longest: 15 * time.Second, Overdue: 1, Promised: promised, Used: 9. / 40}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
