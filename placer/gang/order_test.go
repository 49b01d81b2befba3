// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/hostile"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Children of one parent are an array, and what one of them took tells about the others; a deadline that is a duration counts from when
// the author registered the job; its place is since when it need not wait for others.
func TestOrderHints(t *testing.T) {
	job := hostile.Plain("sweep/dispatch-1", 1, 1, 1)
	parent, submitted := "sweep", time.Unix(1_000_000, 0)
	nanos := submitted.UnixNano()
	job.ParentID, job.SubmitTime = &parent, &nanos
	g := new(Of(Observed{Key: cluster.KeyOf(job), Job: job, Nomad: Waiting}))
	g.Request.Hints, g.eligible = rewrite.Hints{Parallel: 16, Within: time.Hour, Duration: time.Minute}, submitted.Add(time.Minute)
	j := g.QueueJob(0)
	if j.Array != "default/sweep" || j.Name != "default/sweep" || j.Estimate != time.Minute || j.ArrayParallel != 16 || j.Deadline != QueueTime(submitted.Add(time.Hour)) || j.Submitted != QueueTime(submitted.Add(time.Minute)) {
		t.Errorf("in the queue: %+v", j)
	}
	g.eligible = submitted.Add(-time.Minute)
	if at := g.WaitsSince(); !at.Equal(submitted) {
		t.Errorf("it waits since %v for jobs that had finished before", at)
	}
}
