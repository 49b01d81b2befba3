// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Violation describes a broken invariant.
type Violation struct {
	At    time.Time
	Index uint64
	What  string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s, index %d: %s", v.At.Format("15:04:05.000"), v.Index, v.What)
}

// Write is a change of a job that a client requested and that Nomad has completed.
type Write struct {
	Client, Kind  string // register, deregister, stop, dispatch, launch, revert
	Job           Key
	Before, After *api.Job // nil if there is none
	// Checked is the index at which Nomad checked a registration. Index is the index of the write.
	Checked, Index uint64
	At             time.Time
}

// Member describes an allocation at one moment.
type Member struct {
	Job    Key
	ID     string
	Group  string
	Number int
	Node   string
	GPUs   []string // sorted
	// Version is the job version that the member runs. PlacedBy is the version for which the member
	// was placed. The two versions differ after an in-place update.
	Version, PlacedBy *api.Job
	// Desired and Client are the member's desired status and its client status.
	Desired, Client string
	// Done is true if the tasks succeeded without being stopped, and Nomad never counted the member
	// as lost.
	Done bool
	// Created and CreatedAt are the index and the time of the member's placement.
	Created   uint64
	CreatedAt time.Time
	// PreemptedBy is the job in whose favour Nomad preempted the member, or zero if Nomad did not
	// preempt it.
	PreemptedBy Key
	// Purged is the time when the job was purged. After the purge, no list contains the member.
	// Purged is zero if the job was not purged.
	Purged time.Time
	// PurgedIndex is the index of the purge.
	PurgedIndex uint64
	// LostIndex is the index at which Nomad counted the member as lost, or 0 if Nomad did not.
	LostIndex uint64
	// Terminated is the time when the tasks ended on the client, even if the client had no
	// connection at that time. Terminated is zero if the tasks run, or if the machine crashed and
	// the client reported nothing.
	Terminated time.Time
	At         time.Time
}

// Ended reports whether the client has reported the member's end, or Nomad counts the member as
// lost.
func (m Member) Ended() bool { return Ended(m.Client) }

// Live reports whether the member has not ended and should keep running.
func (m Member) Live() bool { return !m.Ended() && m.Desired == api.AllocDesiredStatusRun }

// Members returns the allocations of a job, oldest first.
func (s *Server) Members(k Key) []Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Member, len(s.byJob[k]))
	for i, a := range s.byJob[k] {
		out[i] = s.member(a)
	}
	return out
}

// Observer contains functions that the server calls when something happens. Any of the functions
// can be nil. The functions must not call the server.
type Observer struct {
	Wrote  func(Write)
	Placed func(Member)
	Ended  func(Member)
	// Shared is called when the tasks of one member (second) begin to use a GPU that those of
	// another (first) still use. Two allocations can share a GPU after a node lost its connection
	// and came back.
	Shared func(gpu string, first, second Member)
}

// Observe adds an observer.
func (s *Server) Observe(o Observer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observers = append(s.observers, o)
}

func (s *Server) notifyWrote(w Write) {
	w.Index, w.At = s.index, s.now()
	for _, o := range s.observers {
		if o.Wrote != nil {
			o.Wrote(w)
		}
	}
}

func (s *Server) member(a *alloc) Member {
	m := Member{
		Job: a.key, ID: a.id, Group: a.group, Number: a.number, Node: a.node, GPUs: a.allGPUs(), Version: a.job, PlacedBy: a.placedBy, Desired: a.desired, Client: a.client,
		Done: a.client == api.AllocClientStatusComplete && !a.signalled && !a.wasLost(), Created: a.createIndex, CreatedAt: a.created, Purged: a.purged, PurgedIndex: a.purgedIndex, LostIndex: a.lostIndex, Terminated: a.terminated, At: s.now(),
	}
	if by := s.allocs[a.preemptedBy]; by != nil {
		m.PreemptedBy = by.key
	}
	return m
}

func (s *Server) notifyPlaced(a *alloc) {
	for _, o := range s.observers {
		if o.Placed != nil {
			o.Placed(s.member(a))
		}
	}
}

func (s *Server) notifyEnded(a *alloc) {
	for _, o := range s.observers {
		if o.Ended != nil {
			o.Ended(s.member(a))
		}
	}
}

// Violations returns the violations of Nomad's own invariant that two jobs never hold the same GPU
// at the same time. Each violation is a bug in the simulated Nomad.
func (s *Server) Violations() []Violation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.violations)
}

func (s *Server) notifyShared(gpu string, first, second *alloc) {
	for _, o := range s.observers {
		if o.Shared != nil {
			o.Shared(gpu, s.member(first), s.member(second))
		}
	}
}

// checkGPUsHeldOnce records a violation if allocations of two jobs hold the same GPU.
func (s *Server) checkGPUsHeldOnce(placed *alloc) {
	mine := placed.allGPUs()
	for _, a := range s.allocs {
		if a == placed || a.key == placed.key || a.node != placed.node || !a.holdsResources() || a.preemptedBy != "" {
			continue
		}
		for _, id := range a.allGPUs() {
			if slices.Contains(mine, id) {
				s.violations = append(s.violations, Violation{s.now(), s.index, fmt.Sprintf("GPU %s is used by both %s and %s", id, a.name, placed.name)})
			}
		}
	}
}

// Evaluations returns the evaluations of a job, oldest first.
func (s *Server) Evaluations(k Key) []*api.Evaluation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.evals[k])
}

// Jobs returns the keys of all jobs.
func (s *Server) Jobs() []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sortedKeys(s.jobs)
}
