// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"fmt"
	"maps"

	"github.com/hashicorp/nomad/api"
)

// Next is an empty state for full lists to fill; it goes on with what the old one counts, and with
// what it knows of nodes beside their objects. After the lists comes [State.Follow].
func (s *State) Next() *State {
	n := NewState()
	n.nodeGeneration, n.back = s.nodeGeneration, maps.Clone(s.back)
	n.nodeChanges, n.plain = s.nodeChanges, maps.Clone(s.plain)
	return n
}

// Follow takes over from the state before the lists what these do not say.
func (s *State) Follow(old *State) {
	s.owners = old.owners.after(s.Nodes)
	s.keepOwnPins(old)
	s.purgedAfter(old)
	s.lostAfter(old)
}

// TakeNodes fills in the nodes of a list that is as of the index. Of a node with an error the
// node is as it was known.
func (s *State) TakeNodes(old *State, index uint64, stubs []*NodeStub, nodes []*api.Node, errs []error) {
	s.nodesAt = index
	for i, n := range nodes {
		if n != nil {
			s.readNode(n, old)
		}
		if errs[i] != nil {
			// By a key that is no node's: it is not carried over to the next read.
			s.odd[stubs[i].ID+" unread"] = []string{fmt.Sprintf("node %.80q (%s) cannot be read, and counts as it was known: %v", stubs[i].Name, shortID(stubs[i].ID), errs[i])}
		}
	}
	if len(s.Nodes) != len(old.Nodes) {
		s.nodeChanges++
		s.nodeGeneration++
	}
}

// readNode reads a node of a full read.
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

// KnownJob is the job as the state has it. current reports whether the list shows the same.
func (s *State) KnownJob(stub *JobStub) (job *api.Job, current bool) {
	j := s.Jobs[stub.Key()]
	return j, j != nil && *j.ModifyIndex == stub.ModifyIndex && !s.assumed[stub.Key()]
}

// TakeJobs fills in the jobs of a list that is as of the index. Of a job with an error the job is
// as it was known, if it was.
func (s *State) TakeJobs(old *State, index uint64, stubs []*JobStub, jobs []*api.Job, errs []error) {
	s.jobsAt = index
	for i, j := range jobs {
		k := stubs[i].Key()
		switch {
		case j != nil && errs[i] != nil && old.assumed[k]:
			s.Assume(j) // it is only assumed still
		case j != nil:
			s.PutJob(j)
		}
		if errs[i] != nil {
			s.Unread[k] = errs[i]
		}
	}
}

// TakeAllocs fills in the allocations of a list that is as of the index.
func (s *State) TakeAllocs(index uint64, as []*Alloc) {
	s.allocsAt = index
	for _, a := range as {
		s.PutAlloc(a)
	}
}

// Outrun are jobs of which there are allocations of a later version than was read.
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

// Vanished drops an allocation that Nomad no longer has. If it was live, its tasks may still end.
func (s *State) Vanished(a *Alloc) {
	s.noteVanished(a)
	s.dropAlloc(a)
}
