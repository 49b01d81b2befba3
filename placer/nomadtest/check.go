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

// Write is a change of a job that a client asked for, as it was done.
type Write struct {
	Client, Kind  string // register, deregister, stop
	Job           Key
	Before, After *api.Job // nil if there is none
	// Checked is the index at which Nomad had checked a registration, and Index that at
	// which it was written.
	Checked, Index uint64
	At             time.Time
}

// Member is an allocation as it is at a moment.
type Member struct {
	Job    Key
	ID     string
	Group  string
	Number int
	Node   string
	GPUs   []string // sorted
	// Version is the version of the job that it runs, PlacedBy the one that it was placed
	// for: Nomad updates members in place.
	Version, PlacedBy *api.Job
	// Desired and Client are its states.
	Desired, Client string
	// Done: its tasks ended well by themselves, and Nomad had not taken it for lost.
	Done bool
	// Created is the index at which it was placed, CreatedAt the time.
	Created   uint64
	CreatedAt time.Time
	// PreemptedBy is the job for which Nomad stopped it; the zero key: it did not.
	PreemptedBy Key
	// Purged is the time when its job was purged: no list has it since. It is zero if the job
	// was not.
	Purged time.Time
	// PurgedIndex is the index at that time.
	PurgedIndex uint64
	// LostIndex is the index at which its node was found down, 0 if it was not.
	LostIndex uint64
	// Terminated is the time when its tasks ended by the word of its client, which may have been cut off then; the zero time: they
	// run, or it says nothing, as its machine crashed.
	Terminated time.Time
	At         time.Time
}

// Ended reports whether its client has told that it is over.
func (m Member) Ended() bool { return Ended(m.Client) }

// Live reports whether it is there, and is to go on.
func (m Member) Live() bool { return !m.Ended() && m.Desired == api.AllocDesiredStatusRun }

// Members are a job's allocations, oldest first.
func (s *Server) Members(k Key) []Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Member, len(s.byJob[k]))
	for i, a := range s.byJob[k] {
		out[i] = s.member(a)
	}
	return out
}

// Observer is told what happens, as it happens. Nil functions are not called;
// they must not call the server.
type Observer struct {
	Wrote  func(Write)
	Placed func(Member)
	Ended  func(Member)
	// Shared: the second begins to use a GPU whose tasks the first still runs, as
	// where a node was cut off and is back.
	Shared func(gpu string, first, second Member)
}

// Observe has an observer told from now on.
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

// Violations are the invariants of Nomad itself that were broken so far: no GPU
// is held for two jobs at a time. They are bugs of the model.
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

// checkGPUsHeldOnce finds a GPU that two allocations of different jobs hold.
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

// Evaluations are a job's evaluations, oldest first.
func (s *Server) Evaluations(k Key) []*api.Evaluation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.evals[k])
}

// Jobs are the keys of all jobs.
func (s *Server) Jobs() []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sortedKeys(s.jobs)
}
