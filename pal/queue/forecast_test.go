// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// TestRangesHold: eight of ten ranges are right, whether the waits are proportional to the estimates,
// much shorter, random, or longer and longer.
func TestRangesHold(t *testing.T) {
	for name, wait := range map[string]func(r *rand.Rand, i int, estimate float64) float64{
		"proportional": func(r *rand.Rand, _ int, estimate float64) float64 { return estimate * math.Exp(0.3*r.NormFloat64()) },
		"shorter":      func(r *rand.Rand, _ int, estimate float64) float64 { return estimate / 50 * math.Exp(r.NormFloat64()) },
		"no rule":      func(r *rand.Rand, _ int, _ float64) float64 { return 600 * math.Exp(r.NormFloat64()) },
		"longer and longer": func(r *rand.Rand, i int, estimate float64) float64 {
			return estimate * math.Pow(1.0005, float64(i)) * math.Exp(r.NormFloat64())
		},
	} {
		t.Run(name, func(t *testing.T) {
			q, r := newQueue(t), rand.New(rand.NewPCG(1, 2))
			hits, asked := 0, 0
			for i := range 4000 {
				now := time.Duration(i+1) * 100 * time.Hour
				estimate := float64(int(60) << r.IntN(6))
				f := q.forecasts.rangeOf(now, now+seconds(estimate), now)
				start := now + seconds(wait(r, i, estimate))
				if i >= 500 {
					asked++
					if f.from <= start && start <= f.to {
						hits++
					}
				}
				e := &entry{job: Job{ID: fmt.Sprint(i)}}
				f.job = e.job.ID
				q.forecasts.open = append(q.forecasts.open, f)
				q.forecasts.learnWait(start, e)
				q.forecasts.check(now + 99*time.Hour)
			}
			if rate := float64(hits) / float64(asked); rate < 0.75 || rate > 0.85 {
				t.Errorf("%.3f of the ranges held, want 0.75 to 0.85", rate)
			}
		})
	}
}

// TestNextGangStartsAfterTheFirst: the second of two gangs that each need the whole cluster is not
// expected before the first can have ended. A gang that fits beside the first is expected at the same
// time.
func TestNextGangStartsAfterTheFirst(t *testing.T) {
	for _, backfill := range []Backfill{BackfillNone, BackfillReserved} {
		for gpus, beside := range map[int]bool{4: false, 2: true} {
			q := newTestLine(t, Options{Order: FIFO, Backfill: backfill, Placement: pal.Policy{Name: pal.PAL}})
			c, err := pal.NewCluster(testNodes(1, ""), pal.TwoTier(1.7))
			if err != nil {
				t.Fatal(err)
			}
			runs := pal.Placement{Members: []pal.Member{{GPUs: []int{0, 1, 2, 3}}}, PMScore: 1, Penalty: 1}
			if err := q.Restore(Job{ID: "runs", Gang: pal.SingleGPUs("runs", pal.ClassA, 4), Estimate: time.Hour}, runs, 0); err != nil {
				t.Fatal(err)
			}
			c.Take(pal.SingleGPUs("runs", pal.ClassA, 4), runs)
			for _, id := range []string{"first", "second"} {
				if err := q.Submit(0, Job{ID: id, Gang: pal.SingleGPUs(id, pal.ClassA, gpus), Estimate: time.Hour}); err != nil {
					t.Fatal(err)
				}
			}
			ws := q.Waiting(0, c)
			if len(ws) != 2 || ws[0].From < 30*time.Minute || (ws[1].From-ws[0].From >= 30*time.Minute) == beside || (ws[1].To-ws[0].To >= time.Hour) == beside {
				t.Errorf("%s, %d GPUs each: %v to %v, then %v to %v", backfill, gpus, ws[0].From, ws[0].To, ws[1].From, ws[1].To)
			}
		}
	}
}

// TestForgottenGangTeachesNothing: the wait of a gang that leaves the Queue before it starts does
// not count.
func TestForgottenGangTeachesNothing(t *testing.T) {
	q := newQueue(t)
	if err := q.Submit(0, Job{ID: "j", Gang: pal.SingleGPUs("j", pal.ClassA, 1)}); err != nil {
		t.Fatal(err)
	}
	q.forecasts.open = []prediction{{job: "j", to: time.Hour}}
	q.Removed(0, "j")
	if q.forecasts.check(2 * time.Hour); q.forecasts.checks > 0 {
		t.Error("the wait counts")
	}
}

// TestChecksComeFromAllOfTheQueue: gangs in front wait less than gangs at the end. So the queue
// learns equally often from all its parts, however long it is.
func TestChecksComeFromAllOfTheQueue(t *testing.T) {
	q := newQueue(t)
	const gangs = 400
	for i := range gangs {
		g := pal.Gang{Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: 1, GPUs: 1}}}
		if err := q.Submit(0, Job{ID: fmt.Sprintf("j%03d", i), Gang: g, Estimate: time.Duration(i+1) * time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := pal.NewCluster(testNodes(1, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	for len(q.forecasts.open) < 100 {
		q.passes++
		p := q.newPass(time.Minute, c)
		p.checkForecast()
	}
	checks := map[string]int{}
	for _, r := range q.forecasts.open {
		checks[r.job]++
	}
	var quarters [4]int
	for i, e := range q.line {
		quarters[4*i/gangs] += checks[e.job.ID]
	}
	for i, n := range quarters {
		if n < 20 || n > 30 {
			t.Errorf("of 100 checks %d are of quarter %d of the queue", n, i)
		}
	}
}
