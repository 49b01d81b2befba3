// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"testing"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/hostile"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Children of one parent are an array, and the run time of one predicts that of the others.
// The job's place in the queue counts from the time when it no longer had to wait for other jobs.
func TestOrderHints(t *testing.T) {
	job := hostile.Plain("sweep/dispatch-1", 1, 1, 1)
	parent, submitted := "sweep", time.Unix(1_000_000, 0)
	nanos := submitted.UnixNano()
	job.ParentID, job.SubmitTime = &parent, &nanos
	g := new(Of(Observed{Key: cluster.KeyOf(job), Job: job, Nomad: palapi.Waiting}))
	g.Request.Hints, g.eligible = rewrite.Hints{Parallel: 16, Duration: time.Minute}, submitted.Add(time.Minute)
	j := g.QueueJob(0)
	if j.Array != "default/sweep" || j.Name != "default/sweep" || j.Estimate != time.Minute || j.ArrayParallel != 16 || j.Submitted != QueueTime(submitted.Add(time.Minute)) {
		t.Errorf("in the queue: %+v", j)
	}
	g.eligible = submitted.Add(-time.Minute)
	if at := g.WaitsSince(); !at.Equal(submitted) {
		t.Errorf("it waits since %v, though the jobs before it had finished by then", at)
	}
}
