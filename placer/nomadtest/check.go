// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Violation is an invariant that was broken.
type Violation struct {
	At    time.Time
	Index uint64
	What  string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s, index %d: %s", v.At.Format("15:04:05.000"), v.Index, v.What)
}

// Write is a completed change of a job that a client requested.
type Write struct {
	Client, Kind  string // register, deregister, stop, dispatch, launch, revert
	Job           Key
	Before, After *api.Job // nil if there is none
	// Checked is the index at which Nomad checked a registration. Index is the index of its write.
	Checked, Index uint64
	At             time.Time
}

// Member is an allocation at one moment.
type Member struct {
	Job    Key
	ID     string
	Group  string
	Number int
	Node   string
	GPUs   []string // sorted
	// Version is the job version that it runs. PlacedBy is the version that it was placed for; they
	// differ after an in-place update.
	Version, PlacedBy *api.Job
	// Desired and Client are its desired and its client status.
	Desired, Client string
	// Done: its tasks succeeded by themselves, and Nomad never counted it as lost.
	Done bool
	// Created and CreatedAt are the index and the time of its placement.
	Created   uint64
	CreatedAt time.Time
	// PreemptedBy is the job for which Nomad preempted it; zero if none.
	PreemptedBy Key
	// Purged is when its job was purged; since then no list contains it. Zero if the job was not
	// purged.
	Purged time.Time
	// PurgedIndex is the index at that time.
	PurgedIndex uint64
	// LostIndex is the index at which Nomad counted it as lost; 0 if it did not.
	LostIndex uint64
	// Terminated is when its tasks ended, according to its client, which may have been cut off at
	// that time. Zero if they run, or if the machine crashed and the client reported nothing.
	Terminated time.Time
	At         time.Time
}

// Ended reports whether its client has reported its end.
func (m Member) Ended() bool { return Ended(m.Client) }

// Live reports whether it has not ended and should keep running.
func (m Member) Live() bool { return !m.Ended() && m.Desired == api.AllocDesiredStatusRun }

// Members returns a job's allocations, oldest first.
func (s *Server) Members(k Key) []Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Member, len(s.byJob[k]))
	for i, a := range s.byJob[k] {
		out[i] = s.member(a)
	}
	return out
}

// Observer has functions that are called when something happens; nil functions are not called. They
// must not call the server.
type Observer struct {
	Wrote  func(Write)
	Placed func(Member)
	Ended  func(Member)
	// Shared: second begins to use a GPU that first's tasks still use, for example after a node was
	// cut off and came back.
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

// Violations returns violations of Nomad's own invariant that two jobs never hold one GPU at the
// same time. They are bugs of the model.
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

// checkGPUsHeldOnce records a violation if allocations of two jobs hold one GPU.
func (s *Server) checkGPUsHeldOnce(placed *alloc) {
	mine := placed.allGPUs()
	for _, a := range s.allocs {
		if a == placed || a.key == placed.key || a.node != placed.node || !a.holdsResources() || a.preemptedBy != "" {
			continue
		}
		for _, id := range a.allGPUs() {
			if slices.Contains(mine, id) {
				s.violations = append(s.violations, Violation{s.now(), s.index, fmt.Sprintf("GPU %s is held by %s and %s", id, a.name, placed.name)})
			}
		}
	}
}

// Evaluations returns a job's evaluations, oldest first.
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
