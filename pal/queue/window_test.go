// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// windows returns the windows of lines "name from=minute to=minute gpus=first-last [for=a,b]".
func (w *world) windows(input string) error {
	var ws []Window
	for _, line := range strings.Split(strings.TrimSpace(input), "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		win := Window{Name: f[0]}
		for _, kv := range f[1:] {
			k, v, _ := strings.Cut(kv, "=")
			var n, m int
			_, _ = fmt.Sscanf(v, "%d-%d", &n, &m)
			switch k {
			case "from":
				win.From = time.Duration(n) * time.Minute
			case "to":
				win.To = time.Duration(n) * time.Minute
			case "gpus":
				for u := n; u <= m; u++ {
					win.GPUs = append(win.GPUs, u)
				}
			case "for":
				win.For = strings.Split(v, ",")
			default:
				return fmt.Errorf("window attribute %q", kv)
			}
		}
		ws = append(ws, win)
	}
	w.queue.SetWindows(ws)
	return nil
}

// TestQuantile compares quantile with values computed by hand, and with the distribution itself.
func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		name string
		o    remainingRunTime
		want float64 // seconds
	}{
		{"nothing is known", remainingRunTime{again: 600, rest: 1}, 5400},
		{"an estimate", remainingRunTime{of: []chance{{3600, 1}}}, 3600},
		{"ten runs, the longest but one", remainingRunTime{of: []chance{{1, 8}, {100, 1}, {1000, 1}}}, 100},
		{"one run, and what is not known", remainingRunTime{again: 600, rest: 1, of: []chance{{60, 1}}}, 2400},
	} {
		if got := c.o.quantile(0.9).Seconds(); math.Abs(got-c.want) > 1e-3 {
			t.Errorf("%s: %v s, want %v", c.name, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		o := remainingRunTime{again: rapid.Float64Range(1, 1e4).Draw(t, "again"), rest: rapid.Float64Range(0, 2).Draw(t, "rest")}
		at, weight := 0.0, o.rest
		for range rapid.IntRange(1, 9).Draw(t, "runs") {
			at += rapid.Float64Range(1, 1e4).Draw(t, "gap")
			c := chance{at, rapid.Float64Range(0.1, 1).Draw(t, "weight")}
			o.of, weight = append(o.of, c), weight+c.weight
		}
		ended := func(x float64) float64 {
			sum := o.rest * x / (o.again + x)
			for _, c := range o.of {
				if c.left <= x {
					sum += c.weight
				}
			}
			return sum / weight
		}
		if x := o.quantile(0.9).Seconds(); ended(x*1.0001) < 0.9 || ended(x*0.9999) > 0.9 {
			t.Errorf("after %v s %v of the runs have ended", x, ended(x))
		}
	})
}

// TestWindowFor: only the jobs and namespaces in Window.For can use a reservation.
func TestWindowFor(t *testing.T) {
	j := Job{ID: "ml/train/dispatch-1", Tenant: "ml"}
	for pattern, want := range map[string]bool{"ml": true, "m*": true, "ops": false, "ml/train*": true, "ml/train": false, "ml/*": true, "ops/*": false, "*/train*": true} {
		w := Window{For: []string{pattern}}
		if got := w.admits(j); got != want {
			t.Errorf("%q admits %s: %v", pattern, j.ID, got)
		}
	}
	for _, pattern := range []string{"", "/x", "[a"} {
		if CheckFor(pattern) == nil {
			t.Errorf("pattern %q is accepted", pattern)
		}
	}
}

// TestKeptFrom tests the windows that the command explain shows. A window without GPUs that the job
// could use does not matter, nor do such GPUs of other windows.
func TestKeptFrom(t *testing.T) {
	q, c, j := aboutWindows(t)
	q.SetWindows([]Window{{Name: "soon", From: 2 * time.Hour, To: 4 * time.Hour, GPUs: []int{1, 2, 5}}, {Name: "his", From: time.Hour, To: 9 * time.Hour, GPUs: []int{0}, For: []string{"a"}},
		{Name: "late", From: 3 * time.Hour, To: 4 * time.Hour, GPUs: []int{0}}, {Name: "others", From: time.Hour, To: 9 * time.Hour, GPUs: []int{4, 5}}, {Name: "none", From: time.Hour, To: 9 * time.Hour}})
	want := []Window{{Name: "soon", GPUs: []int{1, 2}, From: 2 * time.Hour, To: 4 * time.Hour}}
	if d := cmp.Diff(want, q.KeptFrom(0, j, c)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// aboutWindows returns a queue, a cluster of two nodes with four GPUs each, and the id of a waiting
// job that can use only the first node's GPUs.
func aboutWindows(t *testing.T) (*Queue, *pal.Cluster, string) {
	t.Helper()
	c, err := pal.NewCluster(testNodes(2, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	q := newTestLine(t, Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}})
	g := pal.SingleGPUs("j", pal.ClassA, 2)
	g.MemberSets[0].Eligible = []bool{true, false}
	if err := q.Submit(0, Job{ID: "a/j", Tenant: "a", Gang: g, Estimate: 3 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	return q, c, "a/j"
}

// A job that waits for windows starts no earlier than the first of them ends. A window on GPUs that
// the job cannot use does not matter.
func TestWaitsForTheFirstWindow(t *testing.T) {
	q, c, _ := aboutWindows(t)
	all := []Window{{Name: "first", To: 2 * time.Hour, GPUs: []int{0, 1}}, {Name: "none", To: time.Hour}, {Name: "others", To: time.Hour, GPUs: []int{4, 5}}, {Name: "more", To: 9 * time.Hour, GPUs: []int{2, 3}}}
	q.SetWindows(all)
	if w := q.Waiting(0, c)[0]; w.Reason != reason.InWindow || w.Until != 2*time.Hour {
		t.Errorf("it waits until %v: %s, want 2h", w.Until, w)
	}
}

// TestSlowGangRunsIntoWindow: a gang on a slow GPU runs longer than its estimate, so it could run
// into a window that begins after the estimated end.
func TestSlowGangRunsIntoWindow(t *testing.T) {
	for score, want := range map[pal.PMScore]int{1: 1, 2: 0} {
		nodes := []pal.Node{{ID: "n", Groups: []pal.DeviceGroup{{Name: "g", GPUs: []pal.GPU{{ID: "u"}}}}}}
		nodes[0].Groups[0].GPUs[0].Scores[0], nodes[0].Groups[0].GPUs[0].Binned[0] = score, score
		c, err := pal.NewCluster(nodes, pal.TwoTier(1.7))
		if err != nil {
			t.Fatal(err)
		}
		q := newTestLine(t, Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}})
		if err := q.Submit(0, Job{ID: "j", Gang: pal.SingleGPUs("j", pal.ClassA, 1), Estimate: time.Hour}); err != nil {
			t.Fatal(err)
		}
		q.SetWindows([]Window{{Name: "w", From: 90 * time.Minute, To: 4 * time.Hour, GPUs: []int{0}}})
		if got := q.Decide(0, c); len(got) != want {
			t.Errorf("at score %v: %v, want %d start", score, got, want)
		}
	}
}

// TestNothingRunsIntoWindows: a gang whose run time is known is never on the GPUs of a window that
// has begun, unless the window admits it. Every gang that can run does run at some time.
func TestNothingRunsIntoWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{Order: rapid.SampledFrom([]Order{FIFO, Adaptive}).Draw(t, "order"), Backfill: rapid.SampledFrom([]Backfill{BackfillNone, BackfillReserved}).Draw(t, "backfill"), Preempt: true, Migrate: true, LocalityWait: true,
			MaxWait: rapid.SampledFrom([]time.Duration{time.Hour, 9 * time.Hour, 999 * time.Hour}).Draw(t, "pass"), Placement: pal.Policy{Name: pal.PAL}}
		w := &world{queue: newTestLine(t, o), gangs: map[string]pal.Gang{}, places: map[string]pal.Placement{}}
		var err error
		if w.cluster, err = pal.NewCluster(testNodes(3, "5"), pal.TwoTier(1.7)); err != nil {
			t.Fatal(err)
		}
		from, long := rapid.IntRange(1, 600).Draw(t, "from"), rapid.IntRange(1, 300).Draw(t, "long")
		if err := w.windows(fmt.Sprintf("one from=%d to=%d gpus=0-%d for=ops\ntwo from=%d to=%d gpus=6-11", from, from+long, rapid.IntRange(0, 11).Draw(t, "gpus"), from+50, from+90)); err != nil {
			t.Fatal(err)
		}
		left, jobs := map[string]time.Duration{}, map[string]Job{} // remaining work of each job
		started := map[string]time.Duration{}
		n := rapid.IntRange(1, 20).Draw(t, "jobs")
		for i, minutes := 0, 0; i < n || len(left) > 0; minutes += 5 {
			if minutes > 20_000 {
				t.Fatalf("still there after %d minutes: %v, waiting %v", minutes, left, w.queue.Waiting(w.now, w.cluster))
			}
			w.now = time.Duration(minutes) * time.Minute
			for id, p := range w.places {
				if ends := started[id] + time.Duration(float64(left[id])*p.Cost()); ends <= w.now {
					w.report("end", id)
					delete(left, id)
				}
			}
			for i < n && rapid.IntRange(0, 3).Draw(t, "arrives") == 0 {
				id := fmt.Sprint("j", i)
				i++
				j := Job{ID: id, Gang: pal.SingleGPUs(id, pal.ClassA, rapid.IntRange(1, 12).Draw(t, "gpus")), Submitted: w.now, Tenant: rapid.SampledFrom([]string{"ops", "ml"}).Draw(t, "tenant"),
					Estimate: time.Duration(rapid.IntRange(1, 500).Draw(t, "minutes")) * time.Minute, Preemptible: rapid.IntRange(0, 3).Draw(t, "pre") == 0}
				w.gangs[id], jobs[id], left[id] = j.Gang, j, j.Estimate
				if err := w.queue.Submit(w.now, j); err != nil {
					t.Fatal(err)
				}
			}
			for more := true; more; {
				actions := w.queue.Decide(w.now, w.cluster)
				for _, a := range actions {
					if a.Kind != Start {
						left[a.Job] -= time.Duration(float64(w.now-started[a.Job]) / w.places[a.Job].Cost())
					}
					w.carryOut(a)
					started[a.Job] = w.now
				}
				more = len(actions) > 0
			}
			for id, p := range w.places {
				for _, win := range w.queue.windows {
					if w.now >= win.From && w.now+5*time.Minute <= win.To && !win.admits(jobs[id]) && firstOn(p, setOf(win.GPUs)) >= 0 {
						t.Fatalf("%v: %s, which started at %v, runs in window %s", w.now, id, started[id], win.Name)
					}
				}
			}
		}
	})
}

// TestEndlessRunKeepsOutOfWindows: a run whose end does not fit into a Duration still counts as
// running into a window. So does a run at an infinite cost.
func TestEndlessRunKeepsOutOfWindows(t *testing.T) {
	now := 56 * 365 * 24 * time.Hour // since 1970
	nodes := []pal.Node{{ID: "n", Groups: []pal.DeviceGroup{{Name: "g", GPUs: []pal.GPU{{ID: "slow"}}}}}}
	nodes[0].Groups[0].GPUs[0].Scores[0], nodes[0].Groups[0].GPUs[0].Binned[0] = 5, 5
	c, err := pal.NewCluster(nodes, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	q := newTestLine(t, Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}})
	if err := q.Submit(now, Job{ID: "j", Gang: pal.SingleGPUs("j", pal.ClassA, 1), Estimate: math.MaxInt64}); err != nil {
		t.Fatal(err)
	}
	q.SetWindows([]Window{{Name: "soon", From: now + time.Hour, To: now + 2*time.Hour, GPUs: []int{0}}})
	if got := q.Decide(now, c); len(got) > 0 {
		t.Errorf("it runs into the window: %v", got)
	}
	if got := q.Waiting(now, c); len(got) != 1 || got[0].Reason != reason.InWindow {
		t.Errorf("it waits for %v, want the window's end", got)
	}
	p := q.newPass(now, nil)
	if end := p.reach(q.entries["j"], math.Inf(1)); end <= now {
		t.Errorf("a run that starts at %v and fits nowhere ends at %v", now, end)
	}
}
