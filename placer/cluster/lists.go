// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"fmt"
	"maps"

	"github.com/hashicorp/nomad/api"
)

// Next returns an empty state to fill from full lists. The new state keeps the counters of s, and
// the data about nodes that lists do not contain. Call [State.Follow] when the lists are complete.
func (s *State) Next() *State {
	n := NewState()
	n.nodeGeneration, n.back = s.nodeGeneration, maps.Clone(s.back)
	n.nodeChanges, n.plain = s.nodeChanges, maps.Clone(s.plain)
	return n
}

// Follow copies from the earlier state the data that lists do not contain.
func (s *State) Follow(old *State) {
	s.owners = old.owners.after(s.Nodes)
	s.keepOwnPins(old)
	s.purgedAfter(old)
	s.lostAfter(old)
}

// TakeNodes adds the nodes from a list. index is Nomad's index of the list. A node that could not
// be read keeps its last known state.
func (s *State) TakeNodes(old *State, index uint64, stubs []*NodeStub, nodes []*api.Node, errs []error) {
	s.at.nodes = index
	for i, n := range nodes {
		if n != nil {
			s.readNode(n, old)
		}
		if errs[i] != nil {
			// The key is not a node id, so the next full read drops the entry.
			s.odd[stubs[i].ID+" unread"] = []string{fmt.Sprintf("node %.80q (%s) cannot be read; its last known state counts: %v", stubs[i].Name, shortID(stubs[i].ID), errs[i])}
		}
	}
	if len(s.Nodes) != len(old.Nodes) {
		s.nodeChanges++
		s.nodeGeneration++
	}
}

// readNode adds a node of a full read.
func (s *State) readNode(n *api.Node, old *State) {
	id, was := n.ID, old.Nodes[n.ID]
	problems := old.odd[id]
	if n != was {
		n, problems = sanitize(n)
	}
	s.report(id, problems)
	if n == nil {
		return
	}
	s.Nodes[id] = n
	if n != was {
		s.nodeChanges++
	}
	s.noteBack(was, n)
	if was != nil && was.Status != n.Status && len(old.owners.shared) > 0 || !sameMeasurements(was, n) {
		s.nodeGeneration++
	}
}

// KnownJob returns the job from the state. current reports whether the list has the same version of
// the job.
func (s *State) KnownJob(stub *JobStub) (job *api.Job, current bool) {
	j := s.Jobs[stub.Key()]
	return j, j != nil && *j.ModifyIndex == stub.ModifyIndex && !s.assumed[stub.Key()]
}

// TakeJobs adds the jobs from a list. index is Nomad's index of the list. If a job could not be
// read, its last known version stays, if there is one.
func (s *State) TakeJobs(old *State, index uint64, stubs []*JobStub, jobs []*api.Job, errs []error) {
	s.at.jobs = index
	for i, j := range jobs {
		k := stubs[i].Key()
		switch {
		case j != nil && errs[i] != nil && old.assumed[k]:
			s.Assume(j) // this form of the job is still assumed
		case j != nil:
			s.PutJob(j)
		}
		if errs[i] != nil {
			s.Unread[k] = errs[i]
		}
	}
}

// TakeAllocs adds the allocations from a list. index is Nomad's index of the list.
func (s *State) TakeAllocs(index uint64, as []*Alloc) {
	s.at.allocs = index
	for _, a := range as {
		s.PutAlloc(a)
	}
}

// Outrun returns the jobs that have an allocation of a later version than the state has.
func (s *State) Outrun() (keys []JobKey) {
	for k, job := range s.Jobs {
		for _, a := range s.ByJob[k] {
			if a.Version != nil && *a.Version > *job.Version {
				keys = append(keys, k)
				break
			}
		}
	}
	return keys
}

// Vanished removes from the state an allocation that Nomad no longer has. If the allocation was
// live, its tasks may still be ending.
func (s *State) Vanished(a *Alloc) {
	s.noteVanished(a)
	s.dropAlloc(a)
}
