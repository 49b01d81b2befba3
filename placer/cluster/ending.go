// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// endWithin is the maximum time for which the GPUs of ended members are held back while other
// members of the gang are ending.
const endWithin = 2 * time.Second

// ending holds the GPUs of a gang whose members have begun to end.
type ending struct {
	since time.Time // zero until [State.Elapse] sets it
	gpus  []string
}

// noteEnd notes that a member has ended with its gang while other members still hold GPUs.
// [endWithin] counts from the end of the first member. So even if the members end one by one over
// hours, their GPUs are held back for endWithin at most.
func (s *State) noteEnd(a *Alloc) {
	job := s.Jobs[a.Job]
	if job == nil || !a.endedWith(job) || len(a.GPUs) == 0 {
		return
	}
	e := s.ending[a.Job]
	if e == nil {
		for _, o := range s.ByJob[a.Job] {
			if o.ID != a.ID && o.endedWith(job) {
				return
			}
		}
		e = &ending{}
		s.ending[a.Job] = e
	}
	e.gpus = append(e.gpus, a.GPUs...)
}

// endedWith reports whether the allocation ended because its gang ends: the allocation succeeded, or
// somebody has stopped the job.
func (a *Alloc) endedWith(job *api.Job) bool {
	return a.endedSince(job) || rewrite.Stopped(job) && !a.Live() && a.ModifyIndex > *job.JobModifyIndex
}

// Ending returns, by job, the GPUs of gangs that are about to end. A gang's members end together,
// but Nomad learns of the ends node by node. If a waiting gang chose among the first free GPUs, it
// could miss better GPUs that become free a moment later, and would keep the worse GPUs for its
// whole run. So Ending lists the GPUs of members that have succeeded or were stopped with their job,
// until all members have ended or [endWithin] has passed.
func (s *State) Ending(now time.Time) map[JobKey][]string {
	held := map[JobKey][]string{}
	for k, e := range s.ending {
		if s.ends(k, e, now) {
			held[k] = slices.Clone(e.gpus)
		}
	}
	return held
}

// ends reports whether members of the gang still hold GPUs and [endWithin] has not passed.
func (s *State) ends(k JobKey, e *ending, now time.Time) bool {
	stopped := s.Jobs[k] != nil && rewrite.Stopped(s.Jobs[k])
	for _, a := range s.ByJob[k] {
		if (a.Member() || stopped && a.Live()) && len(a.GPUs) > 0 {
			return !over(e.since, endWithin, now)
		}
	}
	return false
}

// Elapse sets the start time of all gangs, nodes and allocations that were noted since the last
// call, and deletes expired entries. [State.Ending], [State.Reconnecting] and [State.Purged] count
// from this start time. Entries without a start time never expire.
func (s *State) Elapse(now time.Time) {
	for k, e := range s.ending {
		stamp(&e.since, now)
		if !s.ends(k, e, now) {
			delete(s.ending, k)
		}
	}
	for id, since := range s.back {
		switch { // after a server's start all nodes are here, so write only what changes
		case since.IsZero():
			s.back[id] = now
		case over(since, reconnectWithin, now):
			delete(s.back, id)
		}
	}
	for id, p := range s.purged {
		stamp(&p.since, now)
		if over(p.since, p.kill+killLate, now) {
			delete(s.purged, id)
		}
	}
}

func stamp(since *time.Time, now time.Time) {
	if since.IsZero() {
		*since = now
	}
}

// over reports whether at least the given duration has passed since a start time. over returns
// false if [State.Elapse] has not set the start time yet.
func over(since time.Time, within time.Duration, now time.Time) bool {
	return !since.IsZero() && now.Sub(since) >= within
}
