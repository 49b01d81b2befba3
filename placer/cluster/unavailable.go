// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"maps"
	"time"

	"github.com/hashicorp/nomad/api"
)

// reconnectWithin is how long a node that has come back can take to report its running tasks.
const reconnectWithin = 30 * time.Second

// Reconnecting returns the GPUs, by instance id, of lost allocations on nodes that have just come
// back. For example, after a hang, a node keeps running its tasks until Nomad tells its client to
// stop them. But Nomad counts the node's GPUs as free as soon as the node is ready. Once the client
// reports whether the allocation runs or has ended, Reconnecting no longer returns the allocation's
// GPUs. A client that has forgotten the allocation never reports, so a GPU is listed for
// [reconnectWithin] at most. This time counts from the first [State.Elapse] after the node came
// back. The servers' clocks do not matter.
func (s *State) Reconnecting(now time.Time) map[string]bool {
	gpus := map[string]bool{}
	for _, a := range s.bad {
		n := s.Nodes[a.Node]
		since, back := s.back[a.Node]
		awaited := a.Client == api.AllocClientStatusLost && !a.Reported && n != nil && n.Status == api.NodeStatusReady
		if !back || !awaited || over(since, reconnectWithin, now) {
			continue
		}
		for _, id := range s.OwnGPUs(a) {
			gpus[id] = true
		}
	}
	return gpus
}

// Unavailable returns the GPUs that no job may get yet, although Nomad counts them as free or soon
// will. The map's keys are instance ids, and its values say why the GPUs are unavailable.
// [State.Reconnecting], [State.Purged] and [Alloc.LeftBehind] describe the cases.
func (s *State) Unavailable(now time.Time) map[string]string {
	why := map[string]string{}
	for id := range s.Reconnecting(now) {
		why[id] = "the node has just reconnected, and its running tasks are not known yet"
	}
	for id := range s.Purged(now) {
		why[id] = "tasks of a purged job may still be ending on this GPU"
	}
	for _, a := range s.away {
		if s.LeftBehind(a) {
			for _, id := range s.OwnGPUs(a) {
				why[id] = "the node is disconnected, and may still run a member of a stopped gang"
			}
		}
	}
	return why
}

// noteLost records a lost allocation if its node is ready according to the state. Nomad reports
// that a node is lost before it reports the node's allocations as lost. So either the node has come
// back, or the node was lost after the list of nodes was read and before the list of allocations
// was read.
func (s *State) noteLost(a *Alloc) {
	n := s.Nodes[a.Node]
	if a.Client == api.AllocClientStatusLost && n != nil && n.Status == api.NodeStatusReady {
		s.back[n.ID], s.purgeLikely = time.Time{}, true
	}
}

// lostAfter records allocations that were lost between two full reads.
func (s *State) lostAfter(old *State) {
	for id, was := range old.Allocs {
		a := s.Allocs[id]
		if a != nil && was.Live() {
			s.noteLost(a)
		}
	}
}

// noteBack records a node that has become ready. was is the node's former state, or nil if the node
// was unknown.
func (s *State) noteBack(was, n *api.Node) {
	if n.Status == api.NodeStatusReady && (was == nil || was.Status != n.Status || was.StatusUpdatedAt != n.StatusUpdatedAt) {
		s.back[n.ID] = time.Time{}
	}
}

const (
	// killDefault is Nomad's default for kill_timeout. killMost is the clients' default for
	// max_kill_timeout, which caps kill_timeout.
	killDefault = 5 * time.Second
	killMost    = 30 * time.Second
	// killLate is how long it takes until a client learns that it must end tasks.
	killLate = time.Second
)

// purged holds the GPUs of an allocation that vanished while it was live.
type purged struct {
	since time.Time // zero until [State.Elapse] sets it
	kill  time.Duration
	gpus  []string
}

// Purged returns the GPUs, by instance id, on which tasks of vanished allocations may still be
// ending. Nomad forgets the allocations of a purged job at once and counts their GPUs as free, but
// its clients can take up to the tasks' kill_timeout to end the tasks (seen on 1.11.3). If the
// tasks end earlier, Nomad does not report the end.
func (s *State) Purged(now time.Time) map[string]bool {
	gpus := map[string]bool{}
	for _, p := range s.purged {
		if over(p.since, p.kill+killLate, now) {
			continue
		}
		for _, id := range p.gpus {
			gpus[id] = true
		}
	}
	return gpus
}

// noteVanished records an allocation that Nomad no longer lists.
func (s *State) noteVanished(a *Alloc) {
	kill, ok := s.kills[a.Job]
	if !ok {
		kill = killDefault
	}
	s.noteVanishedIn(a, kill)
}

// noteVanishedIn is like noteVanished, but with the given kill timeout.
func (s *State) noteVanishedIn(a *Alloc, kill time.Duration) {
	if a.Live() && len(a.GPUs) > 0 {
		s.purged[a.ID] = &purged{kill: kill, gpus: s.OwnGPUs(a)}
	}
}

// applyOld applies an allocation event that is older than the list of allocations. If the
// allocation is live in the event but not in the list, it has ended since the event, or vanished
// with its job. Later events show whether the allocation ended or vanished (see
// [State.vanishedWith]).
func (s *State) applyOld(a *Alloc, index uint64) {
	switch {
	case s.Allocs[a.ID] != nil, index <= s.at.known:
	case a.Live():
		s.earlier[a.ID] = a
	default:
		delete(s.earlier, a.ID)
		delete(s.purged, a.ID)
	}
}

// Begun stores the jobs' index at the time when the placer subscribed to events. The index is
// needed because Nomad's stream starts with older events from its buffer.
func (s *State) Begun(since uint64) { s.at.begun = since }

// vanishedWith records a job that was purged after the placer had subscribed, and reports whether
// the job had live allocations that Nomad no longer lists. If a job was purged earlier, the time of
// the purge is unknown, so its GPUs count as free.
func (s *State) vanishedWith(job *api.Job) bool {
	k := KeyOf(job)
	before := len(s.purged)
	kill := killDefault
	if len(job.TaskGroups) > 0 {
		kill = killTimeout(job)
	}
	for id, a := range s.earlier {
		if a.Job == k {
			s.noteVanishedIn(a, kill)
			delete(s.earlier, id)
		}
	}
	return len(s.purged) > before
}

// MissedPurge reports whether pending events show a purged job with allocations that the state does
// not have. The tasks of these allocations can keep running for a while on GPUs that look free to
// Nomad and to the placer.
func (s *State) MissedPurge(es []Event) bool {
	unknown := map[JobKey]bool{}
	for _, e := range es {
		a := e.Payload.Allocation
		switch {
		case a != nil && s.Allocs[a.ID] == nil:
			unknown[e.About()] = true
		case e.Topic == "Job" && e.Payload.Job != nil && e.Purged() && unknown[e.About()]:
			return true
		}
	}
	return false
}

// NoteTaken applies a pending event, in which an allocation got GPUs or ended, to a map from GPUs
// to the jobs that hold them.
func (s *State) NoteTaken(e Event, taken map[string]JobKey) {
	p := e.Payload.Allocation
	if p == nil {
		return
	}
	a := p.AsAlloc()
	known := s.Allocs[a.ID]
	if known != nil && known.ModifyIndex >= a.ModifyIndex {
		return
	}
	for _, id := range a.GPUs {
		if a.Live() {
			taken[id] = a.Job
		} else if taken[id] == a.Job {
			delete(taken, id)
		}
	}
}

// purgedAfter copies the allocations that had vanished before a full read, and records the
// allocations that the full read no longer shows.
func (s *State) purgedAfter(old *State) {
	s.at.known, s.at.begun = max(old.at.allocs, old.at.heard), old.at.begun
	maps.Copy(s.purged, old.purged)
	maps.Copy(s.kills, old.kills)
	for k, job := range old.Jobs {
		if s.Jobs[k] == nil {
			s.kills[k] = killTimeout(job)
		}
	}
	for id, a := range old.Allocs {
		if s.Allocs[id] == nil {
			s.noteVanished(a)
		}
	}
	// A job without allocations has no running tasks.
	maps.DeleteFunc(s.kills, func(k JobKey, _ time.Duration) bool { return len(s.ByJob[k]) == 0 })
}

// killTimeout returns how long the job's tasks can take to end.
func killTimeout(job *api.Job) time.Duration {
	most := time.Duration(0)
	for _, g := range job.TaskGroups {
		for _, t := range g.Tasks {
			d := killDefault
			if t.KillTimeout != nil {
				d = *t.KillTimeout
			}
			most = max(most, d)
		}
	}
	return min(most, killMost)
}
