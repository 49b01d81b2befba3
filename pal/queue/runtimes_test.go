// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

func newQueue(t interface{ Fatal(...any) }) *Queue {
	q, err := New(Options{Order: Adaptive, Placement: pal.Policy{Name: pal.PAL}, Backfill: BackfillReserved})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// A queue that gets another queue's run-time history as JSON expects the same run times, and
// forgets the same names next.
func TestHistoryIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(0, 2*maxNames).Draw(t, "name")) })
		teach := func(t *rapid.T, ls ...*Queue) {
			for range rapid.IntRange(0, 600).Draw(t, "runs") {
				n := name.Draw(t, "of")
				s := sample{work: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "work")), gpus: rapid.IntRange(1, 64).Draw(t, "gpus")}
				for _, q := range ls {
					e := &entry{job: Job{Name: n}}
					q.submitted(e)
					s.nth = e.nth
					q.learn(n[:1], n, s)
				}
			}
		}
		a, b := newQueue(t), newQueue(t)
		teach(t, a)
		data, err := json.Marshal(a.RunTimes())
		if err != nil {
			t.Fatal(err)
		}
		var stored []RunTimes
		if err := json.Unmarshal(data, &stored); err != nil {
			t.Fatal(err)
		}
		b.Remember(stored)
		teach(t, a, b)
		if d := cmp.Diff(a.RunTimes(), b.RunTimes()); d != "" {
			t.Fatalf("history (-before +after)\n%s", d)
		}
		if len(a.runTimes) > maxNames {
			t.Fatalf("%d names", len(a.runTimes))
		}
		e := &entry{job: Job{Name: name.Draw(t, "asked")}, gpus: rapid.IntRange(1, 64).Draw(t, "asked gpus")}
		a.submitted(e)
		x := a.remaining(e, 0)
		if b.submitted(e); b.remaining(e, 0) != x {
			t.Fatalf("%v before, %v after", x, b.remaining(e, 0))
		}
		if len(a.submissions) > 4*maxNames+1 {
			t.Fatalf("submissions of %d names are counted", len(a.submissions))
		}
	})
}

// A gang that is known to be short goes first, also in the next queue. If that queue gets the
// history only after gangs were submitted, it sorts the waiting gangs again.
func TestRememberedOrder(t *testing.T) {
	q := newQueue(t)
	for range 3 {
		q.learn("", "quick", sample{work: time.Second, gpus: 1})
	}
	next := newQueue(t)
	for i, id := range []string{"slow", "quick"} {
		j := Job{ID: id, Name: id, Gang: pal.SingleGPUs(id, pal.ClassA, 1), Submitted: time.Duration(i)}
		if err := next.Submit(j.Submitted, j); err != nil {
			t.Fatal(err)
		}
	}
	next.Remember(append(q.RunTimes(), RunTimes{Name: "broken", Runs: []Run{{-1, 0}}}))
	c, err := pal.NewCluster([]pal.Node{{ID: "n", Name: "n", Groups: []pal.DeviceGroup{{Name: "g", GPUs: []pal.GPU{{ID: "u"}}}}}}, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	if as := next.Decide(time.Second, c); len(as) != 1 || as[0].Job != "quick" {
		t.Errorf("decided %v", as)
	}
	if len(next.runTimes) != 1 {
		t.Errorf("remembers %v", next.RunTimes())
	}
}

// The JSON form of a Wait has all fields except the times, which the caller adds.
func TestWaitJSON(t *testing.T) {
	b, err := json.Marshal(Wait{Job: "ns/j", Position: 1, Reason: reason.GPUs, GPUs: 4, Free: 2, Ahead: "ns/k", AheadGPUs: 8, From: 1, To: 2})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(b), `{"job":"ns/j","position":1,"reason":"gpus","gpus":4,"free":2,"ahead":"ns/k","ahead_gpus":8}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// If all jobs of a tenant have different names, their histories do not displace those of another
// tenant's jobs.
func TestNamesOfOthersAreKept(t *testing.T) {
	q := newQueue(t)
	q.learn("steady", "train", sample{work: time.Hour, gpus: 8})
	for i := range 3 * maxNames {
		q.learn("flood", fmt.Sprint("job-", i), sample{work: time.Second, gpus: 1})
	}
	if len(q.samples("train")) != 1 || len(q.runTimes) != maxNames {
		t.Errorf("%d runs of the other's are known, %d names", len(q.samples("train")), len(q.runTimes))
	}
}
