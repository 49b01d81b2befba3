// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal"
)

// TestVictims: at any time, the victims for a level are the same as if the levels of all running
// gangs were computed and sorted. But under SRTF and Adaptive, a level is computed again only after
// the gang has done a part of its work.
func TestVictims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPlayer(t)
		if !p.opt.Preempt {
			t.Skip("nobody is stopped")
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			p.submit()
			p.until(p.now + time.Duration(rapid.IntRange(0, 40).Draw(t, "minutes"))*time.Minute)
			checkVictims(t, p)
		}
	})
}

func checkVictims(t *rapid.T, p *player) {
	p.queue.count(p.now)
	ps := p.queue.newPass(p.now, p.c)
	ps.mayBeStopped()
	above := func(n int) *victims {
		vs := ps.victimsFor(&entry{of: p.queue.namespace("none")}, n)
		vs.lenders, vs.level = nil, math.MinInt // whatever the quotas are
		return vs
	}
	guessed := p.opt.Order == SRTF || p.opt.Order == Adaptive
	level := func(e *entry) int {
		if guessed {
			return e.memo.level
		}
		return p.queue.levelNow(e, p.now)
	}
	var all []*entry
	gpus := map[int]int{}
	for _, e := range ps.running {
		if e.job.Preemptible && !e.wait.granted {
			gpus[level(e)] += e.gpus
			if ps.ranLongEnough(e) {
				all = append(all, e)
			}
			if late := e.memo.levelDue - p.now; late <= 0 || guessed && late > time.Duration(float64(max(e.work(p.now), p.opt.DefaultRuntime, DefaultRuntime))*e.cost(e.placement)/looks)+1 {
				t.Fatalf("the level of %s should be computed again in %v", e.job.ID, late)
			}
		}
	}
	slices.SortFunc(all, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(level(b), level(a)), cmp.Compare(b.startedAt, a.startedAt), cmp.Compare(b.seq, a.seq))
	})
	for n := -5; n < 8; n++ {
		want, most := []string{}, 0
		for _, e := range all {
			if level(e) > n {
				want = append(want, e.job.ID)
			}
		}
		for l, g := range gpus {
			if l > n {
				most += g
			}
		}
		vs, got := above(n), []string{}
		if vs.atMost() != most {
			t.Fatalf("victims above level %d have at most %d GPUs, want %d", n, vs.atMost(), most)
		}
		for e, _, _ := vs.next(); e != nil; e, _, _ = vs.next() {
			got = append(got, e.job.ID)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s, victims above level %d: %q, all sorted: %q", p.opt.Order, n, got, want)
		}
	}
	if first, _, _ := above(math.MinInt).next(); len(all) > 0 && first != all[0] {
		t.Fatal("an overdue gang stops another one first")
	}
}

// TestRebaseToAnotherSize: if a gang has another size in the new cluster, all counts that include
// the gang change.
func TestRebaseToAnotherSize(t *testing.T) {
	q := newTestLine(t, Options{Order: FIFO, Preempt: true, Placement: pal.Policy{Name: pal.PAL}})
	run := func(id string, gpus int) {
		j := Job{ID: id, Gang: pal.SingleGPUs(id, pal.ClassA, gpus), Preemptible: id == "preemptible"}
		if err := q.Restore(j, pal.Placement{PMScore: 1, Penalty: 1}, 0); err != nil {
			t.Fatal(err)
		}
	}
	run("preemptible", 4)
	run("overdue", 2)
	q.entries["overdue"].wait.granted = true
	q.Rebase(func(id string, g pal.Gang, pl pal.Placement) (pal.Gang, pal.Placement) {
		return pal.SingleGPUs(id, pal.ClassA, 1), pl
	})
	p := q.newPass(time.Hour, nil)
	if got := p.victimsFor(&entry{of: q.namespace("")}, math.MinInt).atMost(); got != 1 {
		t.Errorf("stopping all frees %d GPUs at most, want 1", got)
	}
	if got := q.inTurn(); got != 1 {
		t.Errorf("overdue gangs have %v GPUs, want 1", got)
	}
}

// TestRebaseWhileMoving: Rebase works while a gang moves, although its target GPUs have other
// numbers in the new cluster, or do not exist there.
func TestRebaseWhileMoving(t *testing.T) {
	q := newTestLine(t, Options{Order: FIFO, Migrate: true, Placement: pal.Policy{Name: pal.PAL}})
	c, err := pal.NewCluster(testNodes(1, "0"), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	g := pal.SingleGPUs("slow", pal.ClassA, 1)
	pl := pal.Predict(c, g, []pal.Member{{GPUs: []int{0}}})
	c.Take(g, pl)
	if err := q.Restore(Job{ID: "slow", Gang: g, Estimate: 10 * time.Hour, Migratable: true}, pl, 0); err != nil {
		t.Fatal(err)
	}
	if got := q.Decide(0, c); len(got) != 1 || got[0].Kind != Migrate {
		t.Fatalf("%v, want a move", got)
	}
	nodes := testNodes(1, "0")
	nodes[0].Groups[0].GPUs = nodes[0].Groups[0].GPUs[:1]
	if c, err = pal.NewCluster(nodes, pal.TwoTier(1.7)); err != nil {
		t.Fatal(err)
	}
	q.Rebase(func(_ string, g pal.Gang, pl pal.Placement) (pal.Gang, pal.Placement) { return g, pl })
	c.Take(g, pl)
	if got := q.Decide(time.Minute, c); len(got) > 0 {
		t.Errorf("decided %v", got)
	}
	q.NotStopped("slow") // the move failed: the gang was not stopped
	if got := q.Decide(2*time.Minute, c); len(got) > 0 || len(q.entries["slow"].placement.GPUs()) != 1 {
		t.Errorf("decided %v; it runs on %v", got, q.entries["slow"].placement)
	}
}

// TestRebaseWhileStopping: after Rebase, a gang that was being stopped for another gang is still
// being stopped for it.
func TestRebaseWhileStopping(t *testing.T) {
	q := newTestLine(t, Options{Order: FIFO, JobPriority: true, Preempt: true, Placement: pal.Policy{Name: pal.PAL}})
	c, err := pal.NewCluster(testNodes(2, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range []string{"low1", "low2"} {
		g := pal.SingleGPUs(id, pal.ClassA, 4)
		pl := pal.Predict(c, g, []pal.Member{{GPUs: []int{4 * i}}, {GPUs: []int{4*i + 1}}, {GPUs: []int{4*i + 2}}, {GPUs: []int{4*i + 3}}})
		c.Take(g, pl)
		if err := q.Restore(Job{ID: id, Gang: g, Preemptible: true}, pl, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Submit(0, Job{ID: "high", Gang: pal.SingleGPUs("high", pal.ClassA, 4), Priority: 1}); err != nil {
		t.Fatal(err)
	}
	got := q.Decide(time.Hour, c)
	if len(got) != 1 || got[0].Kind != Preempt {
		t.Fatalf("%v, want one preemption", got)
	}
	q.Rebase(func(_ string, g pal.Gang, pl pal.Placement) (pal.Gang, pal.Placement) { return g, pl })
	if more := q.Decide(time.Hour+time.Second, c); len(more) > 0 {
		t.Errorf("then also %v", more)
	}
	c.Release(pal.SingleGPUs(got[0].Job, pal.ClassA, 4), q.entries[got[0].Job].placement)
	q.Stopped(time.Hour+time.Minute, got[0].Job)
	if now := q.Decide(time.Hour+time.Minute, c); len(now) != 1 || now[0].Kind != Start || now[0].Job != "high" {
		t.Errorf("in the end %v", now)
	}
}

// TestLevelsOfAHugeGang: if a gang's GPU time does not fit into 64 bits, its level does not change
// any more. The search for the next level once did not end, or found a time in the past.
func TestLevelsOfAHugeGang(t *testing.T) {
	for days, more := range map[int]bool{1: true, 20: true, 22: false, 41: false, 300: false, 3000: false} {
		q := newTestLine(t, Options{Order: LAS, Preempt: true, Placement: pal.Policy{Name: pal.PAL}})
		p := pal.Placement{Members: []pal.Member{{GPUs: make([]int, 2048)}}, PMScore: 1, Penalty: 1}
		j := Job{ID: "j", Gang: pal.SingleGPUs("j", pal.ClassA, 2048), Preemptible: true, Attained: time.Duration(days) * 24 * time.Hour}
		if err := q.Restore(j, p, 0); err != nil {
			t.Fatal(err)
		}
		now := time.Hour
		if at := q.nextLevel(q.entries["j"], now); at <= now || (at < math.MaxInt64) != more {
			t.Errorf("after %d days the next level comes at %v", days, at)
		}
	}
}
