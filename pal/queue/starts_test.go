// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// TestStarts: a limit on the starts of a pass changes only the number of passes.
func TestStarts(t *testing.T) {
	decide := func(starts, passes int) (per []int, all string) {
		w := &world{gangs: map[string]pal.Gang{}, places: map[string]pal.Placement{}}
		q, err := New(Options{Order: FIFO, Backfill: BackfillReserved, Migrate: true, Starts: starts, Placement: pal.Policy{Name: pal.PAL}})
		if err != nil {
			t.Fatal(err)
		}
		w.queue = q
		if w.cluster, err = pal.NewCluster(testNodes(3, ""), pal.TwoTier(1.7)); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			if err := w.submit(fmt.Sprintf("j%d 2", i)); err != nil {
				t.Fatal(err)
			}
		}
		for range passes {
			actions := w.queue.Decide(w.now, w.cluster)
			per = append(per, len(actions))
			for _, a := range actions {
				all += fmt.Sprintln(a.Job, a.Placement.GPUs())
				w.cluster.Take(w.gangs[a.Job], a.Placement)
				w.queue.Started(w.now, a.Job, a.Placement)
			}
		}
		return per, all
	}
	_, want := decide(0, 1)
	per, got := decide(2, 3)
	if fmt.Sprint(per) != "[2 2 1]" || got != want {
		t.Errorf("%v:\n%swant:\n%s", per, got, want)
	}
}

// TestNoGrowthBeforeAllWereTried: elastic gangs do not get the GPUs that are still free in a pass
// that reaches its limit of starts, because the pass has not tried all waiting gangs.
func TestNoGrowthBeforeAllWereTried(t *testing.T) {
	w := &world{queue: newTestLine(t, Options{Order: FIFO, Starts: 1, Placement: pal.Policy{Name: pal.PAL}}),
		gangs: map[string]pal.Gang{}, places: map[string]pal.Placement{}}
	var err error
	if w.cluster, err = pal.NewCluster(testNodes(1, ""), pal.TwoTier(1.7)); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"first 2", "elastic 4 least=1 est=600"} {
		if err := w.submit(s); err != nil {
			t.Fatal(err)
		}
	}
	w.decide()
	w.now = time.Hour
	w.report("end", "first")
	for i := range 2 {
		if err := w.submit(fmt.Sprintf("j%d 1", i)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := w.decide(), "start j0 on 0\nstart j1 on 1\n"; got != want {
		t.Errorf("decided\n%swant\n%s", got, want)
	}
}

// TestStartsBoundsStops: the limit on the starts of a pass also limits the gangs that it stops,
// because each stop is a write to Nomad. Only the last decision of a pass can exceed the limit.
func TestStartsBoundsStops(t *testing.T) {
	w := &world{queue: newTestLine(t, Options{Order: FIFO, JobPriority: true, Preempt: true, Starts: 2, Placement: pal.Policy{Name: pal.PAL}}),
		gangs: map[string]pal.Gang{}, places: map[string]pal.Placement{}}
	var err error
	if w.cluster, err = pal.NewCluster(testNodes(2, ""), pal.TwoTier(1.7)); err != nil {
		t.Fatal(err)
	}
	submit := func(of, with string) {
		for i := range 8 {
			if err := w.submit(fmt.Sprintf("%s%d 1 %s", of, i, with)); err != nil {
				t.Fatal(err)
			}
		}
	}
	submit("low", "prio=1 pre=1")
	w.decide()
	w.now = time.Hour
	submit("high", "prio=9")
	for range 4 {
		if got := w.queue.Decide(w.now, w.cluster); len(got) != 2 {
			t.Errorf("decided %v, want 2 at a time", got)
		}
	}
}
