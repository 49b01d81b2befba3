// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// As soon as a few jobs of a tenant have run five times as long as estimated, the tenant's jobs go
// behind those of a tenant with correct estimates. The next Queue knows this, too. Estimates that
// are correct, too long, or missing are not corrected.
func TestEstimatesThatProveWrong(t *testing.T) {
	for _, c := range []struct {
		name string
		ran  []time.Duration // run times of jobs with an estimate of an hour
		want time.Duration   // the corrected estimate of one more hour
	}{
		{"the truth", []time.Duration{time.Hour, time.Hour, time.Hour, time.Hour}, time.Hour},
		{"nearly", []time.Duration{70 * time.Minute, 80 * time.Minute, 70 * time.Minute, time.Hour}, time.Hour},
		{"too much", []time.Duration{time.Minute, time.Minute, time.Minute, time.Minute}, time.Hour},
		{"too little", []time.Duration{5 * time.Hour, 5 * time.Hour, 4 * time.Hour, 6 * time.Hour}, 5 * time.Hour},
		{"not known yet", []time.Duration{5 * time.Hour, 5 * time.Hour, 5 * time.Hour}, time.Hour},
		{"one that hung", []time.Duration{time.Hour, time.Hour, 100 * time.Hour, time.Hour}, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, err := New(Default())
			if err != nil {
				t.Fatal(err)
			}
			job := func(id, tenant string, said time.Duration) Job {
				return Job{ID: id, Name: id, Tenant: tenant, Gang: pal.SingleGPUs(id, pal.ClassA, 1), Estimate: said}
			}
			comes := func(j Job, at time.Duration) Job { j.Submitted = at; return j }
			at := time.Duration(0)
			for i, ran := range c.ran {
				id := fmt.Sprint("ran-", i)
				if err := q.Restore(job(id, "bold", time.Hour), pal.Placement{PMScore: 1, Penalty: 1}, at); err != nil {
					t.Fatal(err)
				}
				at += ran
				q.Finished(at, id)
			}
			next, err := New(Default())
			if err != nil {
				t.Fatal(err)
			}
			next.Remember(q.RunTimes())
			for _, q := range []*Queue{q, next} {
				if got := q.Estimate(job("next", "bold", time.Hour)); got != c.want {
					t.Errorf("an estimate of an hour by this tenant counts as %v, want %v", got, c.want)
				}
				if got := q.Estimate(job("other", "honest", time.Hour)); got != time.Hour {
					t.Errorf("an estimate of an hour by another tenant counts as %v", got)
				}
			}
			if err := q.Submit(at, comes(job("next", "bold", time.Hour), at)); err != nil {
				t.Fatal(err)
			}
			if err := q.Submit(at, comes(job("other", "honest", 2*time.Hour), at)); err != nil {
				t.Fatal(err)
			}
			cluster, err := pal.NewCluster([]pal.Node{{ID: "n", Groups: []pal.DeviceGroup{{Name: "m", GPUs: []pal.GPU{{ID: "g"}}}}}}, pal.TwoTier(1.7))
			if err != nil {
				t.Fatal(err)
			}
			first := map[bool]string{true: "other", false: "next"}[c.want > 2*time.Hour]
			if as := q.Decide(at, cluster); len(as) != 1 || as[0].Job != first {
				t.Errorf("%v, want %s first", as, first)
			}
		})
	}
}

// TestEstimatesOfAllAreComputedAgain: if the factor of a tenant's estimates changes, so do the
// expected run times of all its waiting gangs, also of gangs without a name and of gangs whose name
// another tenant uses, too.
func TestEstimatesOfAllAreComputedAgain(t *testing.T) {
	q := newTestLine(t, Options{Order: SRTF, Placement: pal.Policy{Name: pal.PAL}})
	job := func(id, name, tenant string) Job {
		return Job{ID: id, Name: name, Tenant: tenant, Gang: pal.SingleGPUs(id, pal.ClassA, 1), Estimate: time.Hour}
	}
	for _, j := range []Job{job("named", "n", "bold"), job("unnamed", "", "bold"), job("first", "shared", "honest"), job("shared", "shared", "bold"), job("honest", "", "honest")} {
		if err := q.Submit(0, j); err != nil {
			t.Fatal(err)
		}
	}
	for i := range judgedRuns {
		if err := q.Restore(job(fmt.Sprint("ran-", i), "ran", "bold"), pal.Placement{PMScore: 1, Penalty: 1}, 0); err != nil {
			t.Fatal(err)
		}
		q.Finished(5*time.Hour, fmt.Sprint("ran-", i))
	}
	q.resort()
	for id, want := range map[string]time.Duration{"named": 5 * time.Hour, "unnamed": 5 * time.Hour, "shared": 5 * time.Hour, "first": time.Hour, "honest": time.Hour} {
		if got := q.entries[id].memo.expect; got != want {
			t.Errorf("%s is expected to run for %v, want %v", id, got, want)
		}
	}
}

// The expected end of a job is not in the past, whatever its estimate is and however slow it runs.
// Otherwise a pass would predict the end again and again.
func TestEndsAreNotInThePast(t *testing.T) {
	now := time.Duration(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	for name, j := range map[string]Job{
		"limit": {Limit: math.MaxInt64}, "estimate": {Estimate: math.MaxInt64}, "both": {Limit: math.MaxInt64, Estimate: math.MaxInt64},
		"estimate of 100 years": {Estimate: longestRun}, "attained": {Attained: math.MaxInt64 / 2},
	} {
		for _, cost := range []float64{0.9, 1, 2, 100, math.Inf(1)} {
			c, err := pal.NewCluster(testNodes(1, ""), pal.TwoTier(1.7))
			if err != nil {
				t.Fatal(err)
			}
			q := newTestLine(t, Options{Order: SRTF, Placement: pal.Policy{Name: pal.PAL}})
			j.ID, j.Gang = "runs", pal.SingleGPUs("runs", pal.ClassA, 1)
			at := pal.Placement{PMScore: pal.PMScore(cost), Penalty: 1, Members: []pal.Member{{GPUs: []int{0}}}}
			c.Take(j.Gang, at)
			if err := q.Restore(j, at, now); err != nil {
				t.Fatal(err)
			}
			if err := q.Submit(now, Job{ID: "waits", Gang: pal.SingleGPUs("waits", pal.ClassA, 8)}); err != nil {
				t.Fatal(err)
			}
			for _, e := range runningOf(q) {
				if e.expectedEnd < now {
					t.Fatalf("%s, cost %v: it is expected to end %v before now", name, cost, now-e.expectedEnd)
				}
			}
			q.Decide(now+time.Hour, c)
			if from, to, ok := q.Ends(now+time.Hour, "runs"); ok && (from < now || to < from) {
				t.Errorf("%s, cost %v: it ends from %v to %v, now %v", name, cost, from, to, now)
			}
		}
	}
}

// If the assumed run time of gangs without an estimate changes, their expected run times change,
// too, even if the queue has already computed them.
func TestSilenceIsComputedAgain(t *testing.T) {
	q, err := New(Default())
	if err != nil {
		t.Fatal(err)
	}
	at := time.Duration(0)
	ran := func(id, name string, said, work time.Duration) {
		t.Helper()
		j := Job{ID: id, Name: name, Tenant: "t", Gang: pal.SingleGPUs(id, pal.ClassA, 1), Estimate: said}
		if err := q.Restore(j, pal.Placement{PMScore: 1, Penalty: 1}, at); err != nil {
			t.Fatal(err)
		}
		at += work
		q.Finished(at, id)
	}
	ran("known", "named", 0, time.Hour)
	ran("estimates", "says", time.Hour, time.Hour)
	if err := q.Submit(at, Job{ID: "waits", Name: "named", Tenant: "t", Gang: pal.SingleGPUs("waits", pal.ClassA, 1)}); err != nil {
		t.Fatal(err)
	}
	before := q.expected(q.entries["waits"], at)
	usual := q.usual
	for i := range 20 {
		ran(fmt.Sprint("silent-", i), fmt.Sprint("silent-", i), 0, 100*time.Hour)
	}
	if q.usual == usual {
		t.Fatalf("the factor without an estimate is still %v", usual)
	}
	if now := q.expected(q.entries["waits"], at); now <= before || now != q.Clone().expected(q.entries["waits"], at) {
		t.Errorf("the expected run time was %v, and is %v with a factor of %v", before, now, q.usual)
	}
}

// If other gangs have estimates, a gang without an estimate goes behind a gang whose estimate is a
// little longer than the mean run time of gangs without an estimate. This mean is mostly too low,
// and a correct estimate must not cost a job its place.
func TestSilenceCountsMoreThanTheMean(t *testing.T) {
	q, err := New(Default())
	if err != nil {
		t.Fatal(err)
	}
	at := time.Duration(0)
	for i := range 2 * judgedRuns {
		j := Job{ID: fmt.Sprint(i), Tenant: "t", Gang: pal.SingleGPUs("g", pal.ClassA, 1)}
		if i%2 == 0 {
			j.Estimate = 10 * time.Hour
		}
		if err := q.Restore(j, pal.Placement{PMScore: 1, Penalty: 1}, at); err != nil {
			t.Fatal(err)
		}
		at += 10 * time.Hour
		q.Finished(at, j.ID)
	}
	for id, says := range map[string]time.Duration{"says": 15 * time.Hour, "silent": 0} {
		if err := q.Submit(at, Job{ID: id, Tenant: "t", Gang: pal.SingleGPUs(id, pal.ClassA, 1), Estimate: says}); err != nil {
			t.Fatal(err)
		}
	}
	if first := q.line[0].job.ID; first != "says" {
		t.Errorf("%s goes first; the factor without an estimate is %v", first, q.usual)
	}
}
