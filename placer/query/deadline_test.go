// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// Whether a deadline will be met is said by when the job is expected to start.
func TestDeadlineSentence(t *testing.T) {
	hour := func(n int) time.Duration { return time.Duration(n) * time.Hour }
	d := queue.Deadline{StartBy: hour(6), LostAt: hour(7)}
	urgent, lost := d, d
	urgent.Urgent, lost.Lost = true, true
	const by = ": 9 of 10 jobs like it meet that if they start by 1970-01-01 06:00 UTC"
	for _, c := range []struct {
		d        queue.Deadline
		from, to int
		want     string
	}{
		{d, 0, 0, by},
		{d, 1, 6, by + ", as it is expected to"},
		{d, 1, 7, by + "; it may start later"},
		{urgent, 8, 9, by + "; as things are, it will start too late. The deadline is in danger: it goes first"},
		{lost, 8, 9, ", which it will miss: it would have had to start by 1970-01-01 07:00 UTC. It goes at its ordinary place"},
	} {
		if got := deadlineSentence(c.d, hour(c.from), hour(c.to)); got != c.want {
			t.Errorf("from %d to %d h: %q, want %q", c.from, c.to, got, c.want)
		}
	}
}
