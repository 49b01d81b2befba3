// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// modelsWorld returns a Queue and a cluster with two GPUs: one of the fast model a, and one of the
// slow model b.
func modelsWorld(t *testing.T) *world {
	w := &world{gangs: map[string]pal.Gang{}, places: map[string]pal.Placement{}}
	o := Default()
	o.Preempt, o.Migrate = false, false
	var err error
	if w.queue, err = New(o); err != nil {
		t.Fatal(err)
	}
	var nodes []pal.Node
	for _, m := range []string{"b", "a"} {
		nodes = append(nodes, pal.Node{ID: m, Name: m, Groups: []pal.DeviceGroup{{Name: m, GPUs: []pal.GPU{{ID: m}}}}})
	}
	if w.cluster, err = pal.NewCluster(nodes, pal.TwoTier(1.7)); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) submitAt(t *testing.T, id string, slow float64, estimate time.Duration) {
	t.Helper()
	g := pal.SingleGPUs(id, pal.ClassA, 1)
	g.Speeds = pal.Speeds{"a": 1, "b": slow}
	w.gangs[id] = g
	if err := w.queue.Submit(w.now, Job{ID: id, Gang: g, Submitted: w.now, Estimate: estimate}); err != nil {
		t.Fatal(err)
	}
}

// A gang waits for the fast model as long as that can save time, and then uses the slow model. A
// gang that is equally fast on both models starts at once.
func TestWaitsForTheFasterModel(t *testing.T) {
	w := modelsWorld(t)
	w.submitAt(t, "runs", 0.1, 30*time.Minute)
	if got := w.decide(); got != "start runs on a\n" {
		t.Fatalf("first: %q", got)
	}
	w.submitAt(t, "waits", 0.5, time.Hour)
	if got := w.decide(); got != "nothing\n" {
		t.Errorf("an hour on a, two on b: %q", got)
	}
	if why := w.queue.Waiting(w.now, w.cluster)[0].Why(); why.Kind != reason.Locality {
		t.Errorf("it waits for the faster model, and the reason is %q: %s", why.Kind, why)
	}
	w.now = 29 * time.Minute
	if got := w.decide(); got != "nothing\n" {
		t.Errorf("before the fast GPU should come free: %q", got)
	}
	w.now = 61 * time.Minute
	if got := w.decide(); got != "start waits on b\n" {
		t.Errorf("after it: %q", got)
	}
	w.release("waits")
	w.queue.Finished(w.now, "waits")
	w.submitAt(t, "alike", 1, time.Hour)
	if got := w.decide(); got != "start alike on b\n" {
		t.Errorf("as fast on both: %q", got)
	}
}

// From a run on a slow model, the history knows how long the job would have taken on the fast
// model.
func TestHistoryAcrossModels(t *testing.T) {
	w := modelsWorld(t)
	for _, model := range []string{"a", "b"} {
		g := pal.SingleGPUs(model, pal.ClassA, 1)
		g.Speeds = pal.Speeds{"a": 1, "b": 0.25}
		other := 0
		if model == "b" {
			other = 1
		}
		w.cluster.SetTaken(other, true)
		pl, ok := pal.Place(w.cluster, g, w.queue.opt.Placement)
		w.cluster.SetTaken(other, false)
		if !ok {
			t.Fatal(model)
		}
		if err := w.queue.Restore(Job{ID: model, Name: "n", Gang: g}, pl, 0); err != nil {
			t.Fatal(err)
		}
	}
	w.queue.Finished(time.Hour, "a")
	w.queue.Finished(4*time.Hour, "b")
	for _, s := range w.queue.samples("n") {
		if s.work != time.Hour {
			t.Errorf("a run of an hour on a, or four on b, counts as %v", s.work)
		}
	}
	if n := len(w.queue.samples("n")); n != 2 {
		t.Errorf("%d runs are remembered, want 2", n)
	}
	if diff := cmp.Diff(map[string]ModelRuns{"a": {1, time.Hour}, "b": {1, 4 * time.Hour}}, w.queue.RunsByModel("n", 1)); diff != "" {
		t.Error(diff)
	}
	// The slow model turns out to be faster than assumed, so the run on it did more work.
	next, err := New(Default())
	if err != nil {
		t.Fatal(err)
	}
	next.Remember(w.queue.RunTimes())
	for _, q := range []*Queue{w.queue, w.queue.Clone(), next} {
		g := pal.SingleGPUs("later", pal.ClassA, 1)
		g.Speeds = pal.Speeds{"a": 1, "b": 0.5}
		if err := q.Submit(0, Job{ID: "later", Name: "n", Gang: g}); err != nil {
			t.Fatal(err)
		}
		if got := q.samples("n"); got[0].work != time.Hour || got[1].work != 2*time.Hour {
			t.Errorf("with other speeds: %v", got)
		}
	}
}

// A run counts for no model if it was on two models, if it began before the job came to the Queue,
// or if its GPUs are unknown.
func TestRunsOnSeveralModels(t *testing.T) {
	on := func(model string) pal.Placement {
		return pal.Placement{PMScore: 1, Penalty: 1, Model: model, Speed: map[string]float64{"a": 1, "b": 0.5}[model], Members: []pal.Member{{GPUs: []int{0}}}}
	}
	for name, tc := range map[string]struct {
		first, then string
		done        time.Duration
		want        map[string]ModelRuns
	}{
		"both on one":     {"b", "b", 0, map[string]ModelRuns{"b": {1, 3 * time.Hour}}},
		"on two":          {"a", "b", 0, map[string]ModelRuns{}},
		"began elsewhere": {"b", "b", time.Hour, map[string]ModelRuns{}},
		"unknown":         {"", "", 0, map[string]ModelRuns{}},
	} {
		w := modelsWorld(t)
		g := pal.SingleGPUs("j", pal.ClassA, 1)
		g.Speeds = pal.Speeds{"a": 1, "b": 0.5}
		if err := w.queue.Restore(Job{ID: "j", Name: "n", Gang: g, Attained: tc.done}, on(tc.first), 0); err != nil {
			t.Fatal(err)
		}
		w.queue.Stopped(time.Hour, "j")
		w.queue.Started(2*time.Hour, "j", on(tc.then))
		w.queue.Finished(4*time.Hour, "j")
		if diff := cmp.Diff(tc.want, w.queue.RunsByModel("n", 1)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if other := w.queue.RunsByModel("n", 2); len(other) > 0 {
			t.Errorf("%s: on two GPUs: %v", name, other)
		}
	}
}

// If a gang is absurdly slow on its model, according to its author, the gang moves to the fast
// model when a GPU of this model becomes free. It moves although its gain is more than a Duration
// can hold.
func TestMovesFromAnAbsurdlySlowModel(t *testing.T) {
	for _, slow := range []float64{0.5, 1e-6, 1e-12} {
		w := modelsWorld(t)
		w.queue.opt.Migrate = true
		g := pal.SingleGPUs("j", pal.ClassA, 1)
		g.Speeds = pal.Speeds{"a": 1, "b": slow}
		w.gangs["j"], w.places["j"] = g, pal.Placement{PMScore: 1, Penalty: 1, Model: "b", Speed: slow, Members: []pal.Member{{GPUs: []int{0}}}}
		w.cluster.Take(g, w.places["j"])
		if err := w.queue.Restore(Job{ID: "j", Gang: g, Estimate: 24 * time.Hour, Migratable: true, RestartCost: time.Minute}, w.places["j"], 0); err != nil {
			t.Fatal(err)
		}
		w.now = time.Hour
		if got := w.decide(); got != "migrate j on a\n" {
			t.Errorf("%v as fast on b: %q", slow, got)
		}
	}
}

// Whatever speeds authors state, expected ends are not in the past, and every gang runs and ends
// after the last gang was submitted.
func TestAbsurdSpeeds(t *testing.T) {
	speed := rapid.SampledFrom([]float64{1, 0.5, 1e-3, 1e-6, 1e-12})
	rapid.Check(t, func(rt *rapid.T) {
		w := modelsWorld(t)
		w.queue.opt.Preempt, w.queue.opt.Migrate = true, true
		check := func() {
			w.decide()
			if at, ok := w.queue.Wake(w.now); ok && at <= w.now {
				rt.Fatalf("at %v the queue wants to be woken at %v", w.now, at)
			}
			for _, e := range runningOf(w.queue) {
				if e.expectedEnd < e.startedAt || w.queue.remaining(e, w.now) < 0 || e.work(w.now) < 0 {
					rt.Fatalf("%s: end %v, remaining %v, work %v", e.job.ID, e.expectedEnd, w.queue.remaining(e, w.now), e.work(w.now))
				}
			}
			for _, wait := range w.queue.Waiting(w.now, w.cluster) {
				if wait.From < 0 || wait.To < wait.From {
					rt.Fatalf("%s: %+v", wait.Job, wait)
				}
			}
		}
		for i := range rapid.IntRange(1, 12).Draw(rt, "jobs") {
			id := string(rune('a' + i))
			g := pal.SingleGPUs(id, pal.ClassA, 1)
			a, b := speed.Draw(rt, "a"), speed.Draw(rt, "b")
			if rapid.Bool().Draw(rt, "known") {
				g.Speeds = pal.SpeedsOf(map[string]float64{"a": a, "b": b})
			}
			w.gangs[id] = g
			stops := rapid.Bool().Draw(rt, "stops")
			if err := w.queue.Submit(w.now, Job{ID: id, Name: rapid.SampledFrom([]string{"m", "n"}).Draw(rt, "name"), Gang: g, Submitted: w.now,
				Preemptible: stops, Migratable: stops, RestartCost: time.Second, Estimate: time.Duration(rapid.Int64Range(0, 1e6).Draw(rt, "estimate")) * time.Second}); err != nil {
				rt.Fatal(err)
			}
			check()
			w.now += time.Duration(rapid.Int64Range(1, 1e5).Draw(rt, "later")) * time.Second
			if len(runningOf(w.queue)) > 0 && rapid.Bool().Draw(rt, "ends") {
				w.report("end", runningOf(w.queue)[0].job.ID)
			}
			check()
		}
		for range 100 {
			if len(w.queue.entries) == 0 {
				return
			}
			if len(runningOf(w.queue)) > 0 {
				w.report("end", runningOf(w.queue)[0].job.ID)
			}
			w.now += 1000 * time.Hour
			check()
		}
		rt.Fatalf("never run: %d", len(w.queue.entries))
	})
}

// GPUs that nobody else can use are never declined for the sake of others: a gang that is as fast on
// these GPUs as on any other starts, however many gangs wait that are much faster on them.
func TestNoGangDeclinesGPUsForOthers(t *testing.T) {
	w := modelsWorld(t)
	nodes := []pal.Node{{ID: "b", Name: "b", Groups: []pal.DeviceGroup{{Name: "b", GPUs: []pal.GPU{{ID: "b0"}}}}},
		{ID: "a", Name: "a", Groups: []pal.DeviceGroup{{Name: "a", GPUs: []pal.GPU{{ID: "a0"}, {ID: "a1"}, {ID: "a2"}}}}}}
	var err error
	if w.cluster, err = pal.NewCluster(nodes, pal.TwoTier(1.7)); err != nil {
		t.Fatal(err)
	}
	for id, gpu := range map[string]int{"on-b": 0, "on-a": 1} {
		g := pal.SingleGPUs(id, pal.ClassA, 1)
		g.Speeds = pal.Speeds{"a": 1, "b": 0.7}
		pl := pal.Predict(w.cluster, g, []pal.Member{{GPUs: []int{gpu}}})
		w.cluster.Take(g, pl)
		if err := w.queue.Restore(Job{ID: id, Gang: g, Estimate: 10 * time.Minute}, pl, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"wide", "wider"} { // two GPUs of a are free, and these gangs need all three
		g := pal.SingleGPUs(id, pal.ClassA, 3)
		g.Speeds = pal.Speeds{"a": 1, "b": 0.01}
		if err := w.queue.Submit(0, Job{ID: id, Gang: g, Estimate: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	w.submitAt(t, "one", 0.7, 5*time.Minute)
	if got := w.decide(); got != "start one on a1\n" {
		t.Errorf("two GPUs are idle, and the gang that can use them: %q", got)
	}
}

// No gang waits for a model whose GPUs are all out of service. This holds for new gangs and for
// gangs that already waited for the model. When a GPU of the model is back, gangs wait for it
// again.
func TestModelOutOfUse(t *testing.T) {
	w := modelsWorld(t)
	w.submitAt(t, "runs", 0.1, time.Hour)
	if got := w.decide(); got != "start runs on a\n" {
		t.Fatalf("first: %q", got)
	}
	w.submitAt(t, "waits", 0.1, time.Hour)
	if got := w.decide(); got != "nothing\n" {
		t.Fatalf("a is ten times as fast: %q", got)
	}
	w.now = time.Minute
	w.cluster.SetHealth(1, pal.Health{Quarantined: true}) // the GPU of a
	w.report("end", "runs")
	if got := w.decide(); got != "start waits on b\n" {
		t.Errorf("a is quarantined: %q", got)
	}
	w.report("end", "waits")
	w.submitAt(t, "comes", 0.1, time.Hour)
	if got := w.decide(); got != "start comes on b\n" {
		t.Errorf("a is quarantined, a new gang: %q", got)
	}
	w.report("end", "comes")
	w.cluster.SetHealth(1, pal.Health{})
	w.submitAt(t, "again", 0.1, time.Hour)
	w.submitAt(t, "next", 0.1, time.Hour)
	if got := w.decide(); got != "start again on a\n" {
		t.Errorf("a is back: %q", got)
	}
}

// runningOf returns the running gangs.
func runningOf(q *Queue) []*entry { return q.newPass(0, nil).running }
