// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal"
)

// TestBound checks the promise of the package comment under overload: more work arrives than the
// cluster can do, run times are random, and estimates are wrong. Every watched gang must have
// started by its bound. Users have no limits here, because with limits a user's endless small jobs
// would keep the same user's large gang waiting.
func TestBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPlayer(t)
		p.longest = 60 * time.Minute
		share := rapid.SampledFrom([]float64{0.1, 0.3, 1}).Draw(t, "share")
		o := p.opt
		o.OverdueShare, o.FairShare = share, false
		if x, limits := o.Tenants["all/x"]; limits {
			o.Tenants = map[string]Tenant{"x": x, "y": o.Tenants["all/y"]}
		}
		if o.Order == FIFO && o.Backfill == BackfillNone {
			o.Order = SRTF // strict FIFO has another bound
		}
		var err error
		if p.queue, err = New(o); err != nil {
			t.Fatal(err)
		}
		b := bound{o: o, gpus: float64(p.c.NumGPUs()), longest: p.longest * 2} // a slow GPU doubles a run
		for range rapid.IntRange(1, 6).Draw(t, "old") {
			b.watch(p)
		}
		for len(b.jobs) > 0 && p.now < b.last() {
			for range 3 { // endless small gangs: 3 × 12 GPUs for 30 min on average, every 20 min
				p.submit()
			}
			p.act()
			p.until(p.now + 20*time.Minute)
			b.check(p)
		}
	})
}

// bound computes the times by which watched gangs must have started.
type bound struct {
	o       Options
	gpus    float64
	longest time.Duration
	jobs    []Job
	patient []time.Duration // for each job, the longest patience seen so far
}

// watch submits a gang, and adds it to the watched gangs.
func (b *bound) watch(p *player) {
	p.submit()
	id := fmt.Sprint(p.n)
	b.jobs, b.patient = append(b.jobs, p.jobs[id]), append(b.patient, 0)
}

// by returns the time by which watched gang i must have started. The gang is overdue after its
// patience. Then the gangs before it have their turns, and each turn uses a part of the overdue
// share.
func (b *bound) by(i int) time.Duration {
	turn := b.o.MaxWait + b.longest // the longest time for which GPUs are kept for a turn
	of := func(gpus float64) time.Duration {
		return turn + time.Duration(float64(turn+b.longest)*gpus/(b.o.OverdueShare*b.gpus))
	}
	at := b.jobs[i].Submitted + b.patient[i] + of(b.gpus) + turn // one gang that was overdue earlier can have its turn first
	for _, o := range b.jobs[:i] {
		at += of(float64(o.Gang.GPUs()))
	}
	return at
}

func (b *bound) last() time.Duration { return b.by(len(b.jobs)-1) + time.Hour }

func (b *bound) check(p *player) {
	for i, j := range b.jobs {
		b.patient[i] = max(b.patient[i], p.queue.patience(j))
		if _, waits := p.waiting[j.ID]; waits && !p.stopped[j.ID] && p.now > b.by(i) {
			p.t.Fatalf("gang %s of %d GPUs, submitted at %v, still waits at %v; it had to start by %v", j.ID, j.Gang.GPUs(), j.Submitted, p.now, b.by(i))
		}
	}
	if !slices.ContainsFunc(b.jobs, func(j Job) bool { _, waits := p.waiting[j.ID]; return waits }) {
		b.jobs = nil
	}
}

// TestShare: when nearly all gangs are overdue, those that start in their turn get OverdueShare of
// the GPU time, no more and no less, except for one turn.
func TestShare(t *testing.T) {
	q, err := New(Options{Order: SRTF, Backfill: BackfillReserved, MaxWait: time.Hour, OverdueShare: 0.25, Placement: pal.Policy{Name: pal.PAL}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := pal.NewCluster(testNodes(4, ""), pal.TwoTier(1)) // 16 GPUs
	if err != nil {
		t.Fatal(err)
	}
	places, ends := map[string]pal.Placement{}, map[string]time.Duration{}
	served := 0.0 // GPU hours
	gang := func(id string) pal.Gang { return pal.SingleGPUs(id, pal.ClassA, 4) }
	submit := func(now time.Duration, id string, d time.Duration) {
		if err := q.Submit(now, Job{ID: id, Gang: gang(id), Submitted: now, Estimate: d}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 200 {
		submit(0, fmt.Sprint("long", i), 10*time.Hour)
	}
	for m := range 60 * 200 { // 200 hours
		now := time.Duration(m) * time.Minute
		if m%6 == 0 { // 4 GPUs for 15 min each 6 min: 10 GPUs of 16
			submit(now, fmt.Sprint("short", m), 15*time.Minute)
		}
		for _, id := range sortedKeys(places) {
			if ends[id] <= now {
				c.Release(gang(id), places[id])
				delete(places, id)
				q.Finished(now, id)
			}
		}
		for _, a := range q.Decide(now, c) {
			if ends[a.Job] = now + 15*time.Minute; a.Job[0] == 'l' {
				ends[a.Job] = now + 10*time.Hour
			}
			c.Take(gang(a.Job), a.Placement)
			places[a.Job] = a.Placement
			q.Started(now, a.Job, a.Placement)
		}
		served += q.account.used / 60
	}
	const share, oneTurn = 0.25 * 16 * 200, 4 * (10 + 10)
	if served < share-oneTurn || served > share+oneTurn {
		t.Errorf("overdue gangs got %.0f GPU hours, their share is %v", served, share)
	}
}
