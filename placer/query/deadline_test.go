// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// Whether a deadline will be met depends on the job's expected start.
func TestDeadlineSentence(t *testing.T) {
	hour := func(n int) time.Duration { return time.Duration(n) * time.Hour }
	d := queue.Deadline{StartBy: hour(6), LostAt: hour(7)}
	urgent, lost := d, d
	urgent.Urgent, lost.Lost = true, true
	unknown := queue.Deadline{StartBy: hour(1), LostAt: hour(7), Assumed: 10 * time.Minute}
	unknownLost := unknown
	unknownLost.Lost = true
	const assumed = ": the job's run time is unknown without pal_duration. If it takes 10m as assumed, it meets the deadline if it starts by 1970-01-01 07:00 UTC"
	const by = ": 9 of 10 similar jobs meet their deadline if they start by 1970-01-01 06:00 UTC"
	for _, c := range []struct {
		d        queue.Deadline
		from, to int
		want     string
	}{
		{d, 0, 0, by},
		{d, 1, 6, by + ", and the job is expected to start by this time"},
		{d, 1, 7, by + "; the job may start later"},
		{urgent, 8, 9, by + "; the job is expected to start too late. Little time is left, so the job goes before other jobs of its tenant and priority, except overdue and more urgent jobs"},
		{lost, 8, 9, ", which the job will miss: it would have had to start by 1970-01-01 07:00 UTC. The job keeps its ordinary place in the queue"},
		{unknown, 0, 0, assumed},
		{unknown, 2, 7, assumed + ", and the job is expected to start by this time"},
		{unknown, 6, 8, assumed + "; the job may start later"},
		{unknown, 8, 9, assumed + "; the job is expected to start too late"},
		{unknownLost, 8, 9, ", which the job may miss: the job's run time is unknown without pal_duration. If it takes 10m as assumed, it would have had to start by 1970-01-01 07:00 UTC. The job keeps its ordinary place in the queue"},
	} {
		if got := deadlineSentence(c.d, hour(c.from), hour(c.to)); got != c.want {
			t.Errorf("from %d to %d h: %q, want %q", c.from, c.to, got, c.want)
		}
	}
}
