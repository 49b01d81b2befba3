// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"maps"
	"time"

	"github.com/hashicorp/nomad/api"
)

// reconnectWithin is how long a node that is back may take to say what it still runs.
const reconnectWithin = 30 * time.Second

// Reconnecting are the GPUs of lost allocations on nodes that have just come back,
// by instance id. Such a node, after a hang say, goes on running what it ran
// until its client has been told to stop it, while Nomad counts its GPUs as free
// from the moment it is ready. Once the client reports, the allocation is live or
// has ended, and this ends for its GPUs; a client that has forgotten it never
// reports, so it also ends by time. That counts from the first call that saw the
// node back: the servers' clock and the caller's need not agree. So it counts for
// all nodes of a state that was read again, too.
func (s *State) Reconnecting(now time.Time) map[string]bool {
	for id, since := range s.back {
		switch {
		case since.IsZero():
			s.back[id] = now
		case now.Sub(since) >= reconnectWithin:
			delete(s.back, id)
		}
	}
	gpus := map[string]bool{}
	for _, a := range s.bad {
		n := s.Nodes[a.Node]
		if _, back := s.back[a.Node]; !back || a.Client != api.AllocClientStatusLost || n == nil || n.Status != api.NodeStatusReady {
			continue
		}
		for _, id := range s.OwnGPUs(a) {
			gpus[id] = true
		}
	}
	return gpus
}

// Unavailable says of GPUs, by instance id, why no job may have them yet although Nomad
// counts them as free: see [State.Reconnecting] and [State.Purged].
func (s *State) Unavailable(now time.Time) map[string]string {
	why := map[string]string{}
	for id := range s.Reconnecting(now) {
		why[id] = "the node has just come back, and what it still runs is not known yet"
	}
	for id := range s.Purged(now) {
		why[id] = "tasks of a purged job may still be ending on it"
	}
	return why
}

// ForgetReconnected forgets the nodes that by the servers' clock have been back for
// longer than that. It is for callers that read once and cannot count themselves.
func (s *State) ForgetReconnected(now time.Time) {
	maps.DeleteFunc(s.back, func(id string, _ time.Time) bool {
		n := s.Nodes[id]
		return n == nil || now.Sub(time.Unix(n.StatusUpdatedAt, 0)) >= reconnectWithin
	})
}

// noteLost notes that an allocation was lost on a node that is ready, as far as is known:
// it is not, or is back. Nomad says so before it says that of the allocation, but where
// nodes were read, and allocations a moment later, it is not known yet.
func (s *State) noteLost(a *Alloc) {
	if n := s.Nodes[a.Node]; a.Client == api.AllocClientStatusLost && n != nil && n.Status == api.NodeStatusReady {
		s.back[n.ID] = time.Time{}
	}
}

// lostAfter notes what was lost between two full reads.
func (s *State) lostAfter(old *State) {
	for id, was := range old.Allocs {
		if a := s.Allocs[id]; a != nil && was.Live() {
			s.noteLost(a)
		}
	}
}

// noteBack notes that a node has become ready; was is nil where it was not known.
func (s *State) noteBack(was, n *api.Node) {
	if n.Status == api.NodeStatusReady && (was == nil || was.Status != n.Status || was.StatusUpdatedAt != n.StatusUpdatedAt) {
		s.back[n.ID] = time.Time{}
	}
}
