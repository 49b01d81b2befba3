// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// If runs of a name are mostly short and sometimes very long, a new gang counts as short until it
// has run longer than the short runs. By the mean, it would count as long.
func TestIndexOfHeavyTail(t *testing.T) {
	q := newQueue(t)
	for i := range 40 {
		work := time.Minute
		if i%10 == 9 {
			work = 100 * time.Hour
		}
		q.learn("", "sweep", sample{work: work, gpus: 1})
	}
	e := &entry{job: Job{Name: "sweep"}, gpus: 1}
	if index, mean := q.index(e, 0), q.expected(e, 0); index > 30*time.Minute || mean < 3*time.Hour {
		t.Errorf("new: index %v, mean %v", index, mean)
	}
	e.doneBefore = time.Hour
	if index := q.index(e, 0); index < time.Hour {
		t.Errorf("after an hour: index %v", index)
	}
}

// A gang that has just run longer than an earlier run of its name does not count as about to end.
// Otherwise no gang could ever stop it.
func TestIndexOfOutlasted(t *testing.T) {
	q := newQueue(t)
	for range 10 {
		q.learn("", "n", sample{work: 10 * time.Hour, gpus: 1})
		q.learn("", "n", sample{work: 100 * time.Hour, gpus: 1})
	}
	e := &entry{job: Job{Name: "n"}, gpus: 1, doneBefore: 11 * time.Hour}
	if index := q.index(e, 0); index < time.Hour {
		t.Errorf("index %v", index)
	}
}

// A gang that runs longer than expected gets a later expected end. Otherwise no gang could be
// backfilled while the head waits for this gang.
func TestOverrun(t *testing.T) {
	w := &world{gangs: map[string]pal.Gang{}, places: map[string]pal.Placement{}}
	var err error
	if w.queue, err = New(Options{Order: FIFO, Backfill: BackfillReserved, Placement: pal.Policy{Name: pal.PAL}}); err != nil {
		t.Fatal(err)
	}
	if w.cluster, err = pal.NewCluster(testNodes(2, ""), pal.TwoTier(1.7)); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"long 6 est=60", "wide 8 est=60"} {
		if err := w.submit(s); err != nil {
			t.Fatal(err)
		}
		w.decide()
	}
	w.now = 3 * time.Hour // "long" should have ended 2 h ago, so it is now expected to run as long again
	if err := w.submit("short 1 est=30"); err != nil {
		t.Fatal(err)
	}
	if got := w.decide(); got != "start short on 6\n" && got != "start short on 7\n" {
		t.Errorf("decided %q", got)
	}
}
