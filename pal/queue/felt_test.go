// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// Runs that were submitted shortly before a gang count more in its expected run time than older
// runs.
func TestNearestSubmissionsTell(t *testing.T) {
	q := newQueue(t)
	run := func(id string, ran time.Duration) {
		if err := q.Restore(Job{ID: id, Name: "n", Gang: pal.SingleGPUs(id, pal.ClassA, 1)}, pal.Placement{PMScore: 1, Penalty: 1}, 0); err != nil {
			t.Fatal(err)
		}
		q.Finished(ran, id)
	}
	for i := range 20 {
		run(fmt.Sprint("long-", i), 10*time.Hour)
	}
	for i := range 4 {
		run(fmt.Sprint("short-", i), time.Minute)
	}
	next := Job{ID: "next", Name: "n", Gang: pal.SingleGPUs("next", pal.ClassA, 1)}
	if err := q.Submit(0, next); err != nil {
		t.Fatal(err)
	}
	if got := q.entries["next"].memo.expect; got > 5*time.Hour {
		t.Errorf("20 runs of 10 h, then 4 of a minute: the next is expected to run for %v", got)
	}
}

func TestPatience(t *testing.T) {
	q := newTestLine(t, Default())
	for _, c := range []struct {
		what string
		j    Job
		want time.Duration
	}{
		{"nothing is known", Job{}, DefaultMaxWait},
		{"a minute", Job{Estimate: time.Minute}, time.Hour},
		{"two hours", Job{Estimate: 2 * time.Hour}, 4 * time.Hour},
		{"a week", Job{Estimate: 7 * 24 * time.Hour}, 14 * 24 * time.Hour},
		{"it is ended after three hours", Job{Limit: 3 * time.Hour}, 6 * time.Hour},
		{"it is ended before it is done", Job{Limit: 3 * time.Hour, Estimate: 5 * time.Hour}, 6 * time.Hour},
	} {
		if got := q.patience(c.j); got != c.want {
			t.Errorf("%s: overdue after %v, want %v", c.what, got, c.want)
		}
	}
}

// A gang with an estimate that needs the whole cluster starts soon after its patience ends, even if
// small gangs that go before it keep coming.
func TestWideGangBehindStream(t *testing.T) {
	q := newTestLine(t, Default())
	c, err := pal.NewCluster(testNodes(2, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	gangs, places, ends := map[string]pal.Gang{}, map[string]pal.Placement{}, map[string]time.Duration{}
	submit := func(now time.Duration, id string, gpus int, hours float64) {
		gangs[id] = pal.SingleGPUs(id, pal.ClassA, gpus)
		if err := q.Submit(now, Job{ID: id, Gang: gangs[id], Submitted: now, Estimate: secondsOf(3600 * hours)}); err != nil {
			t.Fatal(err)
		}
	}
	for now := time.Duration(0); now < 12*time.Hour; now += 5 * time.Minute {
		submit(now, fmt.Sprint(now), 1, 1)
		if now == 2*time.Hour {
			submit(now, "wide", 8, 3)
		}
		for id, at := range ends {
			if at <= now {
				c.Release(gangs[id], places[id])
				q.Finished(now, id)
				delete(ends, id)
			}
		}
		for _, a := range q.Decide(now, c) {
			if a.Job == "wide" {
				if waited := now - 2*time.Hour; waited > 7*time.Hour+30*time.Minute {
					t.Errorf("the gang waited for %v", waited)
				}
				return
			}
			c.Take(gangs[a.Job], a.Placement)
			places[a.Job], ends[a.Job] = a.Placement, now+time.Hour
			q.Started(now, a.Job, a.Placement)
		}
	}
	t.Error("the gang still waits after 10 hours")
}

func secondsOf(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// A gang that has run longer than its estimate and is stopped for another gang of its tenant shows
// that the tenant's estimates are too short. Otherwise each gang of the tenant would be stopped for
// the next, and none would end.
func TestStoppedGangsTeach(t *testing.T) {
	q := newTestLine(t, Default())
	for i := range judgedRuns {
		id := fmt.Sprint(i)
		j := Job{ID: id, Tenant: "bold", Gang: pal.SingleGPUs(id, pal.ClassA, 1), Estimate: time.Hour, Preemptible: true}
		if err := q.Restore(j, pal.Placement{PMScore: 1, Penalty: 1}, 0); err != nil {
			t.Fatal(err)
		}
		q.Stopped(3*time.Hour, id)
		q.Started(3*time.Hour, id, pal.Placement{PMScore: 1, Penalty: 1})
		q.Stopped(4*time.Hour, id) // the second stop does not count
	}
	if got := q.Estimate(Job{Tenant: "bold", Estimate: time.Hour}); got != 3*time.Hour {
		t.Errorf("an estimate of an hour counts as %v", got)
	}
	if got := len(q.samples(estimatesOf("bold"))); got != judgedRuns {
		t.Errorf("%d gangs have counted %d times", judgedRuns, got)
	}
}

// A gang of one GPU waits for a GPU that is not an outlier if one should come free while the wait can
// save time. Otherwise, and after this time, it uses the outlier. A wider gang and a service keep
// waiting.
func TestOutlierAfterAWhile(t *testing.T) {
	for _, c := range []struct {
		what  string
		j     Job
		gpus  int
		ends  time.Duration // expected end of the gang on the good GPUs
		waits bool          // at first
		limit time.Duration // the gang has started by then; 0: it keeps waiting
	}{
		{"one GPU", Job{Estimate: time.Hour}, 1, 30 * time.Minute, true, time.Hour}, // the outlier has half the speed
		{"one GPU, and others come free too late", Job{Estimate: time.Hour}, 1, 2 * time.Hour, false, 0},
		{"one that may be moved", Job{Estimate: time.Hour, Migratable: true}, 1, 10 * time.Minute, true, 15 * time.Minute},
		{"one that may be moved, and others come free too late", Job{Estimate: time.Hour, Migratable: true}, 1, 30 * time.Minute, false, 0},
		{"two GPUs", Job{Estimate: time.Hour}, 2, 100 * time.Hour, true, 0},
		{"a service", Job{Endless: true, Anywhere: true}, 1, 100 * time.Hour, true, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			q := newTestLine(t, Default())
			cl, err := pal.NewCluster(testNodes(1, "0"), pal.TwoTier(1.7))
			if err != nil {
				t.Fatal(err)
			}
			run := func(id string, us ...int) {
				g := pal.SingleGPUs(id, pal.ClassA, len(us))
				var ms []pal.Member
				for _, u := range us {
					ms = append(ms, pal.Member{GPUs: []int{u}})
				}
				pl := pal.Predict(cl, g, ms)
				cl.Take(g, pl)
				if err := q.Restore(Job{ID: id, Gang: g, Estimate: c.ends}, pl, 0); err != nil {
					t.Fatal(err)
				}
			}
			run("good", []int{1, 2, 3}[:4-max(1, c.gpus)]...)
			c.j.ID, c.j.Gang = "j", pal.SingleGPUs("j", pal.ClassA, c.gpus)
			if err := q.Submit(0, c.j); err != nil {
				t.Fatal(err)
			}
			if as := q.Decide(0, cl); (len(as) == 0) != c.waits {
				t.Fatalf("at first: %v", as)
			}
			if !c.waits {
				return
			}
			if c.limit == 0 {
				if as := q.Decide(30*time.Hour, cl); len(as) > 0 {
					t.Errorf("after 30 hours: %v", as)
				}
				return
			}
			if wake, ok := q.Wake(0); !ok || wake > c.ends+time.Second {
				t.Errorf("the queue looks at it again at %v (%t), want %v", wake, ok, c.ends)
			}
			if as := q.Decide(c.ends-time.Second, cl); len(as) > 0 {
				t.Errorf("too soon: %v", as)
			}
			if as := q.Decide(c.limit, cl); len(as) != 1 {
				t.Errorf("after %v: %v", c.limit, as)
			}
		})
	}
}

// A question about what a gang waits for does not change what Wake returns.
func TestAskingChangesNothing(t *testing.T) {
	q := newTestLine(t, Default())
	cl, err := pal.NewCluster(testNodes(2, "0"), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	for id, u := range map[string]int{"left": 0, "right": 4} {
		g := pal.SingleGPUs(id, pal.ClassA, 1)
		pl := pal.Predict(cl, g, []pal.Member{{GPUs: []int{u}}})
		cl.Take(g, pl)
		if err := q.Restore(Job{ID: id, Gang: g, Estimate: 100 * time.Hour}, pl, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Submit(0, Job{ID: "j", Gang: pal.SingleGPUs("j", pal.ClassA, 4), Estimate: 1000 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	before, _ := q.Wake(0)
	if ws := q.Waiting(0, cl); len(ws) != 1 || ws[0].Reason != reason.Locality || ws[0].Until == 0 {
		t.Fatalf("it waits for %+v, not for a better GPU: the test proves nothing", ws)
	}
	if after, _ := q.Wake(0); after != before {
		t.Errorf("after the question, the queue looks at it again at %v, not at %v", after, before)
	}
}

func TestStopsAtCheckpoints(t *testing.T) {
	e := &entry{job: Job{RestartCost: time.Minute, Checkpoint: time.Hour}, state: running, startedAt: 10 * time.Hour}
	for after, want := range map[time.Duration]bool{
		30 * time.Minute: false, 60 * time.Minute: false, 61 * time.Minute: true, 62 * time.Minute: true, 70 * time.Minute: false,
		121 * time.Minute: true, 20*time.Hour + 31*time.Minute: true, 20*time.Hour + 50*time.Minute: false,
	} {
		if got := e.atCheckpoint(e.startedAt + after); got != want {
			t.Errorf("after %v it may be stopped: %t", after, got)
		}
	}
	if got, ok := e.nextCheckpoint(e.startedAt + 90*time.Minute); !ok || got != e.startedAt+121*time.Minute {
		t.Errorf("the next one is at %v", got-e.startedAt)
	}
	if got, ok := e.nextCheckpoint(e.startedAt); !ok || got != e.startedAt+61*time.Minute {
		t.Errorf("its first one is at %v", got-e.startedAt)
	}
	for after := time.Duration(0); after < 40*time.Hour; after += 7 * time.Minute {
		if _, ok := e.nextCheckpoint(e.startedAt + after); ok != (after < 32*time.Hour+time.Minute) {
			t.Errorf("after %v, its next checkpoint matters: %t", after, ok)
		}
	}
	for after := 32*time.Hour + time.Minute; after < 40*time.Hour; after += 7 * time.Minute {
		if !e.atCheckpoint(e.startedAt + after) {
			t.Errorf("after %v it may not be stopped, but no checkpoint is awaited", after)
		}
	}
	if e.job.Checkpoint = 100 * time.Hour; !e.atCheckpoint(e.startedAt + time.Hour) {
		t.Error("a gang without a checkpoint for days cannot be stopped for days")
	}
}

// A victim with checkpoints is stopped right after a checkpoint, and Wake returns the time of the
// checkpoint.
func TestPreemptsAfterCheckpoint(t *testing.T) {
	q := newTestLine(t, Default())
	c, err := pal.NewCluster(testNodes(1, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	g := pal.SingleGPUs("long", pal.ClassA, 4)
	pl, _ := pal.Place(c, g, q.opt.Placement)
	c.Take(g, pl)
	if err := q.Restore(Job{ID: "long", Gang: g, Estimate: 100 * time.Hour, Preemptible: true, RestartCost: time.Minute, Checkpoint: time.Hour}, pl, 0); err != nil {
		t.Fatal(err)
	}
	if err := q.Submit(50*time.Minute, Job{ID: "short", Gang: pal.SingleGPUs("short", pal.ClassA, 1), Submitted: 50 * time.Minute, Estimate: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if as := q.Decide(50*time.Minute, c); len(as) > 0 {
		t.Errorf("before the checkpoint: %v", as)
	}
	at, ok := q.Wake(51 * time.Minute)
	if !ok || at != 61*time.Minute {
		t.Errorf("wakes at %v", at)
	}
	if as := q.Decide(at, c); len(as) != 1 || as[0].Kind != Preempt {
		t.Errorf("after the checkpoint: %v", as)
	}
}
