// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Ends predicts the end of a running gang if its run time is known. Otherwise it returns no guess.
func TestEnds(t *testing.T) {
	w := &world{gangs: map[string]pal.Gang{}, places: map[string]pal.Placement{}}
	var err error
	if w.queue, err = New(Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}}); err != nil {
		t.Fatal(err)
	}
	if w.cluster, err = pal.NewCluster(testNodes(2, ""), pal.TwoTier(1.7)); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"known 4 est=60", "unknown 2", "waits 8 est=60"} {
		if err := w.submit(s); err != nil {
			t.Fatal(err)
		}
		w.decide()
	}
	now := 10 * time.Minute
	cost := w.queue.entries["known"].placement.Cost()
	at := func(work time.Duration) time.Duration { return time.Duration(float64(work)*cost) + 0 }
	from, to, ok := w.queue.Ends(now, "known")
	if !ok || from > at(time.Hour) || to < at(time.Hour) || to > at(2*time.Hour) {
		t.Errorf("known: from %v to %v, %v", from, to, ok)
	}
	for _, id := range []string{"unknown", "waits", "nobody"} {
		if from, to, ok := w.queue.Ends(now, id); ok || from != 0 || to != 0 {
			t.Errorf("%s: from %v to %v, %v", id, from, to, ok)
		}
	}
}

// An estimate counts as the run time on the best GPUs that the gang can get. The gang of eight GPUs
// never fits one node of four.
func TestEstimateOnBestGPUs(t *testing.T) {
	for _, c := range []struct {
		best float64
		want time.Duration
	}{{0, 102 * time.Minute}, {1.7, time.Hour}, {0.85, 2 * time.Hour}} {
		q := newTestLine(t, Options{Order: FIFO, Placement: pal.Policy{Name: pal.Packed}})
		g := pal.SingleGPUs("wide", pal.ClassA, 8)
		cluster, err := pal.NewCluster(testNodes(2, ""), pal.TwoTier(1.7))
		if err != nil {
			t.Fatal(err)
		}
		p, fits := pal.Place(cluster, g, pal.Policy{Name: pal.Packed})
		if !fits {
			t.Fatal("the gang does not fit")
		}
		p.PMScore = 1
		if err := q.Submit(0, Job{ID: "wide", Gang: g, Estimate: time.Hour, Best: c.best}); err != nil {
			t.Fatal(err)
		}
		q.Started(0, "wide", p)
		if end := q.entries["wide"].expectedEnd; (end - c.want).Abs() > time.Second {
			t.Errorf("best cost %g: expected to end after %v, want %v", c.best, end, c.want)
		}
		q.ReferEstimates(func(string, pal.Gang) float64 { return 3.4 })
		if left := q.remaining(q.entries["wide"], 0); (stretched(left, 1.7) - 30*time.Minute).Abs() > time.Second {
			t.Errorf("after the nodes have changed, %v of work are left", left)
		}
	}
}
