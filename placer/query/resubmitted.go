// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// keeps reports whether a running job requests the GPUs that its members have.
func (s summary) keeps(st gang.Observed, job *api.Job) bool {
	forbidden := s.m.View.Forbids(job, st.Members)
	if st.Nomad != palapi.Resubmitted {
		return gang.SameRequests(st.Job, job) && (!forbidden || s.m.View.Forbids(st.Job, st.Members))
	}
	if forbidden {
		return false
	}
	// The members run an earlier version than the one that Nomad has now, and hold the GPUs that
	// the earlier version requested.
	elastic, _ := rewrite.ElasticOf(job)
	for _, g := range job.TaskGroups {
		members, each := 0, rewrite.GPUsPerMember(g)
		for _, a := range st.Members {
			if a.Group == *g.Name {
				if members++; len(a.GPUs) != each {
					return false
				}
			}
		}
		if each > 0 && members != rewrite.Members(g) && elastic.Group != *g.Name {
			return false
		}
	}
	return true
}

// replicas reports whether the job is a service of replicas, which Nomad alone updates.
func replicas(job *api.Job) bool {
	return *job.Type == api.JobTypeService && !gang.Observed{Job: job}.NeedsAll()
}

// tooLarge returns why a gang keeps running its old version although its author has submitted a new
// one; no reason for other gangs.
func (s summary) tooLarge(t *model.Tracked) reason.Reason {
	switch {
	case t == nil || t.Nomad != palapi.Resubmitted:
		return reason.Reason{}
	case t.Refused != nil:
		return reason.Reason{Kind: reason.RunsUnread, Cause: t.Refused.Error()}
	case s.keeps(t.Observed, t.Job), replicas(t.Job):
		return reason.Reason{}
	}
	room := s.m.RoomForAll(&t.Lifecycle)
	if !room.Fits {
		return reason.Reason{Kind: reason.RunsOnAsBefore}.Over(room.Reason)
	}
	return reason.Reason{}
}

// resubmitted explains what happens if a job is submitted again while its gang runs: see
// [palapi.Resubmitted]. kept reports whether the job requests the GPUs that it has. If the job
// requests other GPUs, room is where it could run.
func (e *draft) resubmitted(st gang.Observed, job *api.Job, kept bool, room gang.Room) {
	e.State, e.Obstacles = palapi.Running, nil
	e.Reason = reason.Reason{Needs: st.Holds()}
	switch {
	case kept:
		e.Reason.Kind = reason.WouldKeep
		if gang.HasCanaries(job) {
			e.Reason.Kind = reason.WouldCanary
		}
		e.Decision = nil
	case replicas(job):
		e.Reason.Kind, e.Decision = reason.WouldReplace, nil
	case room.Fits:
		e.State, e.Decision = palapi.Starting, &room.Decision
		e.Reason.Kind = reason.WouldRestart
		if *job.Type == api.JobTypeService {
			e.Reason.Kind = reason.WouldReplace
		}
	default:
		if e.Decision != nil && e.Decision.Placed { // the decision ignores that other jobs wait
			e.Decision = nil
		}
		e.Reason.Kind = reason.WouldRunOn
		e.Reason = e.Reason.Over(room.Reason)
	}
}
