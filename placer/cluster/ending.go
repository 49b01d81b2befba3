// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"slices"
	"time"
)

// endWithin is for how long the GPUs of the members that end first wait for the
// rest of their gang.
const endWithin = 2 * time.Second

// ending are GPUs of a gang whose members have begun to do so.
type ending struct {
	since time.Time // zero: not seen yet, see [State.Elapse]
	gpus  []string
}

// noteEnd notes that a member has done its work while others of its gang go on.
// Only what follows the first end of a gang counts: members that end one by one,
// as those of an array of tasks, do not wait for each other.
func (s *State) noteEnd(a *Alloc) {
	job := s.Jobs[a.Job]
	if job == nil || !a.endedSince(job) || len(a.GPUs) == 0 {
		return
	}
	e := s.ending[a.Job]
	if e == nil {
		for _, o := range s.ByJob[a.Job] {
			if o.ID != a.ID && o.endedSince(job) {
				return
			}
		}
		e = &ending{}
		s.ending[a.Job] = e
	}
	e.gpus = append(e.gpus, a.GPUs...)
}

// Ending are the GPUs of gangs that are about to end, by job: those of members
// that have done their work, until all have, or for [endWithin]. The members of a
// gang end at one time, but Nomad learns of it node by node: whoever chose among
// the first GPUs to come free would get a worse gang than a moment later, and be
// bound to it for all its time.
func (s *State) Ending(now time.Time) map[JobKey][]string {
	held := map[JobKey][]string{}
	for k, e := range s.ending {
		if s.ends(k, e, now) {
			held[k] = slices.Clone(e.gpus)
		}
	}
	return held
}

// ends reports whether the gang has members that run still, and little time has passed.
func (s *State) ends(k JobKey, e *ending, now time.Time) bool {
	for _, a := range s.ByJob[k] {
		if a.Member() && len(a.GPUs) > 0 {
			return !over(e.since, endWithin, now)
		}
	}
	return false
}

// Elapse notes the time at which things were seen that have happened since it was called last,
// and forgets what is over. [State.Ending], [State.Reconnecting] and [State.Purged] count
// from then; until then such a thing counts as just seen.
func (s *State) Elapse(now time.Time) {
	for k, e := range s.ending {
		stamp(&e.since, now)
		if !s.ends(k, e, now) {
			delete(s.ending, k)
		}
	}
	for id, since := range s.back {
		stamp(&since, now)
		if s.back[id] = since; over(since, reconnectWithin, now) {
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

// over reports whether so much time has passed since; zero: not seen yet.
func over(since time.Time, within time.Duration, now time.Time) bool {
	return !since.IsZero() && now.Sub(since) >= within
}
