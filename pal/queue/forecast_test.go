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

// TestRangesHold: eight of ten ranges are right, whether the waits are proportional to the queue
// ahead, random, or longer and longer.
func TestRangesHold(t *testing.T) {
	for name, wait := range map[string]func(r *rand.Rand, i, ahead int) float64{
		"by the queue": func(r *rand.Rand, _, ahead int) float64 { return float64(ahead) * 60 * math.Exp(0.3*r.NormFloat64()) },
		"no rule":      func(r *rand.Rand, _, _ int) float64 { return 600 * math.Exp(2*r.NormFloat64()) },
		"longer and longer": func(r *rand.Rand, i, _ int) float64 {
			return 600 * math.Pow(1.002, float64(i)) * math.Exp(r.NormFloat64())
		},
	} {
		t.Run(name, func(t *testing.T) {
			q, r := newQueue(t), rand.New(rand.NewPCG(1, 2))
			hits, asked := 0, 0
			for i := range 4000 {
				now := time.Duration(i) * time.Hour
				ahead := 1 << r.IntN(10)
				e := &entry{gpus: 1 << r.IntN(4), expect: time.Hour, waitingSince: now}
				f := q.forecasts.predictStart(now, e, ahead, now, q.forecasts.byLength(now))
				start := now + seconds(wait(r, i, ahead))
				if i >= 500 {
					asked++
					if f.known && f.from <= start && start <= f.to {
						hits++
					}
				}
				q.forecasts.remember(&f)
				e.predictions = []*prediction{&f}
				q.forecasts.learnWait(start, e)
			}
			if rate := float64(hits) / float64(asked); rate < 0.75 || rate > 0.85 {
				t.Errorf("%.3f of the ranges held, want 0.75 to 0.85", rate)
			}
		})
	}
}

// TestRangeFollowsTheLine: if waits are proportional to the queue ahead, a gang at the end of a
// long queue has a later expected start than a gang at its head.
func TestRangeFollowsTheLine(t *testing.T) {
	q := newQueue(t)
	e := &entry{gpus: 1, expect: time.Hour}
	if f := q.forecasts.predictStart(0, e, 0, 0, q.forecasts.byLength(0)); f.known {
		t.Error("a start is predicted before any gang waited")
	}
	for i := range 200 {
		ahead := 1 << (i % 10)
		f := q.forecasts.predictStart(0, e, ahead, 0, q.forecasts.byLength(0))
		q.forecasts.remember(&f)
		e.predictions = []*prediction{&f}
		q.forecasts.learnWait(time.Duration(ahead)*time.Minute, e)
	}
	first, last := q.forecasts.predictStart(0, e, 1, 0, q.forecasts.byLength(0)), q.forecasts.predictStart(0, e, 512, 0, q.forecasts.byLength(0))
	if first.to >= last.from {
		t.Errorf("at the head %v to %v, behind 512 GPUs %v to %v", first.from, first.to, last.from, last.to)
	}
}

// TestNextGangStartsAfterTheFirst: two gangs that each need the whole cluster have waited equally
// long. The second is not expected before the first can have ended. A gang that fits beside the
// first is expected at the same time.
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
			for range fewestWaits {
				q.forecasts.remember(&prediction{started: true, waited: 2 * time.Hour})
			}
			ws := q.Waiting(0, c)
			if len(ws) != 2 || ws[0].To == 0 || (ws[1].From-ws[0].From >= time.Hour) == beside || ws[1].To-ws[1].From != ws[0].To-ws[0].From {
				t.Errorf("%s, %d GPUs each: %v to %v, then %v to %v", backfill, gpus, ws[0].From, ws[0].To, ws[1].From, ws[1].To)
			}
		}
	}
}

// TestWaitingGangsTeachOthers: the wait of a gang that still waits counts for other gangs, so that
// ranges are learned while few gangs have started. It does not count for the gang itself.
func TestWaitingGangsTeachOthers(t *testing.T) {
	q, now := newQueue(t), 10*time.Hour
	for range fewestStarts {
		q.forecasts.remember(&prediction{at: 0, started: true, waited: time.Minute})
	}
	waits, other := &entry{gpus: 1, expect: time.Hour}, &entry{gpus: 1, expect: time.Hour}
	rangeOf := func(e *entry) prediction { return q.forecasts.predictStart(now, e, 0, now, q.forecasts.byLength(now)) }
	for range fewestWaits {
		if f := rangeOf(other); f.known != (len(q.forecasts.waits) >= fewestWaits) {
			t.Fatalf("after %d waits, of which %d have ended, a range is known: %t", len(q.forecasts.waits), fewestStarts, f.known)
		}
		r := &prediction{at: 0}
		waits.predictions = append(waits.predictions, r)
		q.forecasts.remember(r)
	}
	if f := rangeOf(other); f.to < now+20*time.Hour {
		t.Errorf("a gang has waited for 10 hours, and another is expected to start in at most %v", f.to-now)
	}
	if f := rangeOf(waits); f.to > now+10*time.Minute {
		t.Errorf("all others waited for a minute, and the gang is expected to start in up to %v", f.to-now)
	}
}

// TestForgottenGangTeachesNothing: the wait of a gang that leaves the Queue before it starts does
// not count.
func TestForgottenGangTeachesNothing(t *testing.T) {
	q := newQueue(t)
	e := &entry{gpus: 1, expect: time.Hour}
	f := q.forecasts.predictStart(0, e, 0, 0, q.forecasts.byLength(0))
	q.forecasts.remember(&f)
	e.predictions = []*prediction{&f}
	q.forecasts.forget(e)
	if len(q.forecasts.waits) > 0 {
		t.Errorf("%d waits remembered", len(q.forecasts.waits))
	}
}

// TestOldestWaitIsReplaced: a new wait replaces the oldest stored wait, even if gangs have left the
// queue before.
func TestOldestWaitIsReplaced(t *testing.T) {
	q := newQueue(t)
	waits := func(ats ...int) (es []*entry) {
		for _, at := range ats {
			r := &prediction{at: time.Duration(at)}
			q.forecasts.remember(r)
			es = append(es, &entry{predictions: []*prediction{r}})
		}
		return es
	}
	for i := range maxWaits {
		waits(i)
	}
	waits(1000, 1001)
	q.forecasts.forget(&entry{}) // a gang that had started long ago ends
	gone := waits(1002)[0]
	oldest := func() time.Duration {
		least := time.Duration(math.MaxInt64)
		for _, r := range q.forecasts.waits {
			least = min(least, r.at)
		}
		return least
	}
	if at := oldest(); at != 3 || len(q.forecasts.waits) != maxWaits {
		t.Errorf("the oldest of %d waits is number %d, want 3 of %d", len(q.forecasts.waits), at, maxWaits)
	}
	q.forecasts.forget(gone)
	if waits(1003); oldest() != 3 || len(q.forecasts.waits) != maxWaits {
		t.Errorf("a wait was forgotten: the oldest of %d is number %d", len(q.forecasts.waits), oldest())
	}
	if waits(1004); oldest() != 4 {
		t.Errorf("one more wait: the oldest is number %d, want 4", oldest())
	}
}

// TestChecksComeFromAllOfTheQueue: gangs in front wait less than gangs at the end. So the queue
// learns equally often from all its parts, however long it is, and uses what it learned for all
// gangs.
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
	for range 100 * checkEvery {
		q.passes++
		p := &pass{planner: q.at(time.Minute, c)}
		p.checkForecast()
	}
	var quarters [4]int
	for i, e := range q.byKey() {
		quarters[4*i/gangs] += len(e.predictions)
		if all := q.aheadOfAll(); all[e] != q.ahead(e) {
			t.Fatalf("%s: %d GPUs ahead when asked, %d when learned", e.job.ID, all[e], q.ahead(e))
		}
	}
	for i, n := range quarters {
		if n < 20 || n > 30 {
			t.Errorf("of 100 checks %d are of quarter %d of the queue", n, i)
		}
	}
}
