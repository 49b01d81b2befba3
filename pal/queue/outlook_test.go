// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"testing"
	"time"
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
	e.earlier.work = time.Hour
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
	e := &entry{job: Job{Name: "n"}, gpus: 1, earlier: earlierRuns{work: 11 * time.Hour}}
	if index := q.index(e, 0); index < time.Hour {
		t.Errorf("index %v", index)
	}
}
