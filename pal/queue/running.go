// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// runners holds the running gangs, including those that are being stopped or moved.
type runners struct {
	running  []*entry // in no order
	byEnd    []*entry // by expected end, earliest first
	elastics []*entry // the elastic ones among them
	endless  int      // number of services among them
}

// join adds a gang that has begun to run.
func (rs *runners) join(e *entry) {
	e.runPos = len(rs.running)
	rs.running = append(rs.running, e)
	if e.elastic != nil {
		e.at = len(rs.elastics)
		rs.elastics = append(rs.elastics, e)
	}
	i, _ := slices.BinarySearchFunc(rs.byEnd, e, byEnd)
	rs.byEnd = slices.Insert(rs.byEnd, i, e)
	if e.job.Endless {
		rs.endless++
	}
}

// part removes from the lists a gang that is no longer running.
func (rs *runners) part(e *entry) {
	last := rs.running[len(rs.running)-1]
	rs.running[e.runPos], last.runPos = last, e.runPos
	rs.running = rs.running[:len(rs.running)-1]
	if e.elastic != nil {
		last := rs.elastics[len(rs.elastics)-1]
		rs.elastics[e.at], last.at = last, e.at
		rs.elastics = rs.elastics[:len(rs.elastics)-1]
	}
	if i, ok := slices.BinarySearchFunc(rs.byEnd, e, byEnd); ok {
		rs.byEnd = slices.Delete(rs.byEnd, i, i+1)
	}
	if e.job.Endless {
		rs.endless--
	}
}

// byEnd compares running gangs by expected end. Remove a gang from runners.byEnd before its
// expected end changes.
func byEnd(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.expectedEnd, b.expectedEnd), cmp.Compare(a.seq, b.seq))
}

// foreseeEnds gives each gang that should have ended by now a new expected end, at least a second
// in the future.
func (rs *runners) foreseeEnds(fs *foresight, now time.Duration) {
	for len(rs.byEnd) > 0 && rs.byEnd[0].expectedEnd < now {
		e := rs.byEnd[0]
		left := stretched(fs.remaining(e, now), e.cost(e.placement))
		rs.expectEnd(e, now+max(left, time.Second))
	}
}

// expectEnd sets the time at which a running gang is expected to end.
func (rs *runners) expectEnd(e *entry, at time.Duration) {
	if i, ok := slices.BinarySearchFunc(rs.byEnd, e, byEnd); ok {
		rs.byEnd = slices.Delete(rs.byEnd, i, i+1)
	}
	e.expectedEnd = at
	i, _ := slices.BinarySearchFunc(rs.byEnd, e, byEnd)
	rs.byEnd = slices.Insert(rs.byEnd, i, e)
}

// Running returns the IDs and placements of the running gangs, including those that are being
// stopped or moved, in no particular order.
func (rs *runners) Running() iter.Seq2[string, pal.Placement] {
	return func(yield func(string, pal.Placement) bool) {
		for _, e := range rs.running {
			if !yield(e.job.ID, e.placement) {
				return
			}
		}
	}
}
