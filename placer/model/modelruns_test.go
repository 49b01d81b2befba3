// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// A job in the queue keeps the run-time history that was known when it arrived, because its request
// and the queue must agree. A later job gets the history known then.
func TestRunsOfAJob(t *testing.T) {
	m, err := New(Config{Queue: queue.Default(), Placement: pal.PAL}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	remembers := func(m *Model, hours ...int64) {
		h := queue.RunTimes{Name: "default/train", Models: []string{"T4"}}
		for _, n := range hours {
			h.Runs = append(h.Runs, queue.Run{n * int64(time.Hour), 2, 1})
		}
		m.Queue.Remember([]queue.RunTimes{h})
	}
	job := func(id, parent string) *api.Job {
		return &api.Job{ID: &id, Name: &id, Namespace: new("default"), ParentID: &parent}
	}
	sees := func(what string, job *api.Job, gpus, runs int, hours time.Duration) {
		t.Helper()
		if got := m.runsOf(job, gpus).ByModel["T4"]; got != (queue.ModelRuns{Runs: runs, Time: hours * time.Hour}) {
			t.Errorf("%s: %+v, want %d runs of %d hours", what, got, runs, hours)
		}
	}
	train := job("train", "")
	tracked := &Tracked{}
	m.Jobs[cluster.KeyOf(train)] = tracked
	sees("nothing is known", train, 2, 0, 0)
	remembers(m, 1, 3, 5)
	sees("it is not in the queue", train, 2, 3, 3)
	tracked.Queued = true
	remembers(m, 8, 8, 8, 8)
	sees("it is in the queue", train, 2, 3, 3)
	sees("a run of it as a template", job("train/dispatch-1", "train"), 2, 4, 8)
	sees("with other GPUs", job("train/dispatch-1", "train"), 4, 0, 0)
	sees("another job", job("other", ""), 2, 0, 0)
	tracked.Queued = false
	sees("it comes again", train, 2, 4, 8)
}
