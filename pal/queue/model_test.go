// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal"
)

// modelJob is a job on a cluster of equal GPUs; times are in minutes.
type modelJob struct{ submit, gpus, run int }

// model returns when each job starts under FIFO, shortest job first or EASY, as textbooks describe
// them. It only counts GPUs. No job is stopped, and all run times are known.
func model(jobs []modelJob, gpus int, shortest, easy bool) []int {
	starts := make([]int, len(jobs))
	var waiting, running []int
	free := gpus
	end := func(i int) int { return starts[i] + jobs[i].run }
	run := func(i, now int) {
		starts[i], free = now, free-jobs[i].gpus
		running = append(running, i)
		waiting = slices.DeleteFunc(waiting, func(o int) bool { return o == i })
	}
	for now, left := 0, len(jobs); left > 0; now++ {
		running = slices.DeleteFunc(running, func(i int) bool {
			if end(i) == now {
				free, left = free+jobs[i].gpus, left-1
			}
			return end(i) == now
		})
		for i, j := range jobs {
			if j.submit == now {
				waiting = append(waiting, i)
			}
		}
		if shortest {
			slices.SortStableFunc(waiting, func(a, b int) int { return jobs[a].run - jobs[b].run })
		}
		for len(waiting) > 0 && jobs[waiting[0]].gpus <= free {
			run(waiting[0], now)
		}
		if !easy || len(waiting) == 0 {
			continue
		}
		slices.SortFunc(running, func(a, b int) int { return end(a) - end(b) })
		shadow, extra := 0, free-jobs[waiting[0]].gpus // when the head starts, and how many GPUs are then still free
		for _, i := range running {
			if extra < 0 || end(i) == shadow {
				shadow, extra = end(i), extra+jobs[i].gpus
			}
		}
		for _, i := range slices.Clone(waiting[1:]) {
			switch n := jobs[i].gpus; {
			case n > free:
			case now+jobs[i].run <= shadow:
				run(i, now)
			case n <= extra:
				extra -= n
				run(i, now)
			}
		}
	}
	return starts
}

// playedBy returns the time at which the Queue starts each job.
func playedBy(t *rapid.T, jobs []modelJob, gpus int, o Options) []int {
	o.Placement, o.MaxWait = pal.Policy{Name: pal.PAL}, 1e6*time.Hour
	q, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	c, err := pal.NewCluster(testNodes(gpus/4, ""), pal.TwoTier(1))
	if err != nil {
		t.Fatal(err)
	}
	starts, places := make([]int, len(jobs)), make([]pal.Placement, len(jobs))
	gang := func(i int) pal.Gang { return pal.SingleGPUs(fmt.Sprint(i), pal.ClassA, jobs[i].gpus) }
	for i := range starts {
		starts[i] = -1
	}
	for m, left := 0, len(jobs); left > 0; m++ {
		now := time.Duration(m) * time.Minute
		for i, j := range jobs {
			if starts[i] >= 0 && starts[i]+j.run == m {
				c.Release(gang(i), places[i])
				q.Finished(now, fmt.Sprint(i))
				left--
			}
		}
		for i, j := range jobs {
			if j.submit == m {
				if err := q.Submit(now, Job{ID: fmt.Sprint(i), Gang: gang(i), Submitted: now, Estimate: time.Duration(j.run) * time.Minute}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, a := range q.Decide(now, c) {
			var i int
			_, _ = fmt.Sscan(a.Job, &i)
			starts[i], places[i] = m, a.Placement
			c.Take(gang(i), a.Placement)
			q.Started(now, a.Job, a.Placement)
		}
	}
	return starts
}

// TestModel: with exact estimates and equal GPUs, the Queue starts each gang at the same time as
// textbook FIFO, shortest job first and EASY.
func TestModel(t *testing.T) {
	for name, o := range map[string]Options{"FIFO": {Order: FIFO}, "SRTF": {Order: SRTF}, "EASY": {Order: FIFO, Backfill: BackfillReserved},
		"SRTF with EASY": {Order: SRTF, Backfill: BackfillReserved}} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				gpus := 4 * rapid.IntRange(1, 4).Draw(t, "nodes")
				jobs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) modelJob {
					return modelJob{rapid.IntRange(0, 60).Draw(t, "submit"), rapid.IntRange(1, gpus).Draw(t, "gpus"), rapid.IntRange(1, 60).Draw(t, "run")}
				}), 1, 30).Draw(t, "jobs")
				slices.SortStableFunc(jobs, func(a, b modelJob) int { return a.submit - b.submit })
				want := model(jobs, gpus, o.Order == SRTF, o.Backfill == BackfillReserved)
				if d := cmp.Diff(want, playedBy(t, jobs, gpus, o)); d != "" {
					t.Fatalf("starts of %v on %d GPUs, in minutes (-model +Queue):\n%s", jobs, gpus, d)
				}
			})
		})
	}
}
