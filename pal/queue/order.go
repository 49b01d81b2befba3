// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"math"
	"time"
)

// key sorts waiting gangs: smaller first.
type key struct {
	overdue bool
	rank    float64
	since   time.Duration // submission; of the overdue, when they began to wait
	seq     int64
}

func (a key) compare(b key) int {
	if a.overdue != b.overdue {
		if a.overdue {
			return -1
		}
		return 1
	}
	if c := cmp.Compare(a.rank, b.rank); c != 0 {
		return c
	}
	if c := cmp.Compare(a.since, b.since); c != 0 {
		return c
	}
	return cmp.Compare(a.seq, b.seq)
}

// keyOf is the key of a gang that waits.
func (l *Line) keyOf(e *entry) key {
	if e.overdue {
		return key{overdue: true, since: e.waitingSince, seq: e.seq}
	}
	return key{rank: l.rank(e, e.waitingSince), since: e.job.Submitted, seq: e.seq}
}

// rank is what the order sorts by: it does not change while a gang waits.
func (l *Line) rank(e *entry, now time.Duration) float64 {
	switch l.opt.Order {
	case Priority:
		return float64(-e.job.Priority)
	case LAS:
		return float64(l.level(e, now))
	case SRTF:
		return l.remaining(e, now).Seconds()
	case Adaptive:
		return l.remaining(e, now).Seconds() * float64(e.gpus)
	}
	return 0
}

// level is how preemption sees a gang: it may stop gangs of a greater level.
// LAS levels are powers of 4 of attained GPU time over the quantum; those of
// expected remaining time are powers of 4 too, so that a gang is only stopped
// for one that is much shorter.
func (l *Line) level(e *entry, now time.Duration) int {
	switch l.opt.Order {
	case Priority:
		return -e.job.Priority
	case LAS:
		return powerOf4(e.attained(now).Seconds()*float64(e.gpus), l.opt.Quantum.Seconds())
	case SRTF:
		return powerOf4(l.remaining(e, now).Seconds(), 1)
	case Adaptive:
		return powerOf4(l.remaining(e, now).Seconds()*float64(e.gpus), 1)
	}
	return 0
}

// powerOf4 counts how often 4 goes into x/unit: 0 below the unit, 1 from there
// to 4 times it, and so on.
func powerOf4(x, unit float64) int {
	if x < unit {
		return 0
	}
	return 1 + int(math.Log2(x/unit)/2)
}
