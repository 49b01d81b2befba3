// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"encoding/json"

	"github.com/hashicorp/nomad/api"
)

// Event is an event from Nomad's event stream, for [State.Apply].
type Event struct {
	Topic, Type string
	Index       uint64
	Key         string
	Payload     Payload
	// Unread is the error if the change could not be parsed, and nil otherwise. If Unread is set,
	// the object must be read from Nomad.
	Unread error `json:"-"`
}

// Payload is the object in an event.
type Payload struct {
	Node       *api.Node
	Job        *api.Job
	Deleted    bool // the job was purged
	Allocation *AllocPayload
}

// About returns the job of the event, or the zero key if the event has no job.
func (e Event) About() JobKey {
	p := e.Payload
	switch {
	case p.Allocation != nil:
		return JobKey{p.Allocation.Namespace, p.Allocation.JobID}
	case p.Job != nil && p.Job.ID != nil && p.Job.Namespace != nil:
		return KeyOf(p.Job)
	}
	return JobKey{}
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Payload) UnmarshalJSON(text []byte) error {
	var read struct {
		Node       *NodePayload
		Job        *api.Job
		Deleted    bool
		Allocation *AllocPayload
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*p = Payload{read.Node.AsNode(), read.Job, read.Deleted, read.Allocation}
	return nil
}

// Progress reports whether the event only shows that Nomad carries out a decision: it has created
// an allocation, an allocation has started, or the job's status has changed as a result. An event
// that only shows progress neither frees nor requests a GPU.
func (e Event) Progress() bool {
	a := e.Payload.Allocation
	switch {
	case e.Topic == "Allocation" && a != nil:
		return a.DesiredStatus == api.AllocDesiredStatusRun && (a.ClientStatus == api.AllocClientStatusPending || a.ClientStatus == api.AllocClientStatusRunning)
	case e.Topic == "Job":
		return e.Type == "EvaluationUpdated" || e.Type == "PlanResult" || e.Type == "AllocationUpdated"
	}
	return false
}

// Purged reports whether the event's job was purged. Nomad 1.11 and later reports a purge in the
// event. With older versions, the job's ModifyIndex shows a purge, because a stop changes the job
// and a purge does not.
func (e Event) Purged() bool {
	p := e.Payload
	return p.Deleted || e.Type == "JobDeregistered" && p.Job.ModifyIndex != nil && *p.Job.ModifyIndex < e.Index
}

// Apply applies an event unless the lists already contain it, and reports
// whether anything that matters for GPUs changed.
func (s *State) Apply(e Event) bool {
	p := e.Payload
	switch {
	case e.Unread != nil, p.Job != nil && (p.Job.ID == nil || p.Job.Namespace == nil):
		return false
	case e.Topic == "Node" && e.Index > s.at.nodes && e.Type == "NodeDeregistration":
		s.DropNode(e.Key)
	case e.Topic == "Node" && e.Index > s.at.nodes && p.Node != nil:
		return s.PutNode(p.Node)
	case e.Topic == "Allocation" && p.Allocation != nil:
		a := p.Allocation.AsAlloc()
		if e.Index <= s.at.allocs {
			s.applyOld(a, e.Index)
			return false
		}
		s.at.heard = e.Index
		s.PutAlloc(a)
	case e.Topic == "Job" && p.Job != nil && e.Purged():
		vanished := e.Index > s.at.begun && s.vanishedWith(p.Job)
		if e.Index <= s.at.jobs {
			return vanished
		}
		now := s.Jobs[KeyOf(p.Job)]
		if now != nil && *now.ModifyIndex > e.Index {
			return false // the job was registered again after this purge
		}
		s.DropJob(KeyOf(p.Job))
	case e.Topic == "Job" && e.Index > s.at.jobs && p.Job != nil:
		s.takeJob(p.Job)
	default:
		return false
	}
	return true
}
