// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"fmt"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// noteDeadline says how a waiting job stands to its deadline.
func (s *Snapshot) noteDeadline(e *Explanation, t *model.Tracked, w *model.Wait) {
	at, ok := t.Request.Hints.DeadlineOf(t.Submitted())
	if !ok {
		return
	}
	said := "pal_deadline is " + model.Moment(gang.QueueTime(at))
	d, counts := s.m.Queue.DeadlineOf(gang.QueueTime(s.m.Time), t.Key.String())
	switch {
	case !counts && !s.m.Cfg.Queue.Deadlines:
		said += "; deadlines do not count here (queue { deadlines = false })"
	case !counts: // it is not in the queue
	case w == nil:
		said += DeadlineSentence(d, 0, 0)
	default:
		said += DeadlineSentence(d, w.From, w.To)
	}
	e.Note = strings.TrimPrefix(e.Note+"; "+said, "; ")
}

// DeadlineSentence says whether a deadline will be met by a job that is expected to start
// between from and to; 0 and 0: nobody knows.
func DeadlineSentence(d queue.Deadline, from, to time.Duration) string {
	if d.Lost {
		return fmt.Sprintf(", which it will miss: it would have had to start by %s. It goes at its ordinary place", model.Moment(d.LostAt))
	}
	said := fmt.Sprintf(": 9 of 10 jobs like it meet that if they start by %s", model.Moment(d.StartBy))
	switch {
	case to == 0:
	case to <= d.StartBy:
		said += ", as it is expected to"
	case from > d.LostAt:
		said += "; as things are, it will start too late"
	default:
		said += "; it may start later"
	}
	if d.Urgent {
		said += ". The deadline is in danger: it goes first"
	}
	return said
}
