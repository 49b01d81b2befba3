// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// The end of a running gang is foretold from what is known of its run time, and is not
// guessed without.
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
	if !ok || from < at(50*time.Minute) || from > at(70*time.Minute) || to <= from {
		t.Errorf("known: from %v to %v, %v", from, to, ok)
	}
	for _, id := range []string{"unknown", "waits", "nobody"} {
		if from, to, ok := w.queue.Ends(now, id); ok || from != 0 || to != 0 {
			t.Errorf("%s: from %v to %v, %v", id, from, to, ok)
		}
	}
}
