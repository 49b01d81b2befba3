// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"fmt"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// keeps says whether a job that runs asks for the GPUs that its members have. Callers hold mu.
func (s *Snapshot) keeps(st gang.Observed, job *api.Job) bool {
	forbidden := s.m.View.Forbids(job, st.Members)
	if st.Nomad != gang.Resubmitted {
		return gang.SameRequests(st.Job, job) && (!forbidden || s.m.View.Forbids(st.Job, st.Members))
	}
	if forbidden {
		return false
	}
	// They run an earlier version than Nomad shows: what that asked for they have.
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

// tooLarge is why a gang runs on as it was, though its author asks for something else now;
// "" of others. Callers hold mu.
func (s *Snapshot) tooLarge(t *model.Tracked) string {
	switch {
	case t == nil || t.Nomad != gang.Resubmitted:
		return ""
	case t.Refused != nil:
		return "what it asks for now cannot be served, the old gang runs on: " + t.Refused.Error()
	case s.keeps(t.Observed, t.Job):
		return ""
	}
	if room := s.m.RoomForAll(&t.Gang); !room.Fits {
		return gang.RunsOn + room.Reason
	}
	return ""
}

// resubmitted says what running a job's file would do while its gang runs: see
// [gang.Resubmitted]. kept: it asks for the GPUs that it has; room is where it could go else.
func (e *Explanation) resubmitted(st gang.Observed, job *api.Job, kept bool, room gang.Room) {
	e.State, e.Obstacles = gang.Running, nil
	switch {
	case kept:
		change := "Nomad restarts the tasks that change"
		if gang.HasCanaries(job) {
			change = "if its tasks change, Nomad first places the canaries, on further GPUs"
		}
		them := "them"
		if st.Holds() == 1 {
			them = "it"
		}
		e.Reason = fmt.Sprintf("runs on %s and would keep %s; %s", pal.CountGPUs(st.Holds()), them, change)
		e.Decision = nil
	case room.Fits:
		e.State, e.Decision = gang.Starting, &room.Decision
		become := "stopped and started again, as a whole"
		if *job.Type == api.JobTypeService {
			become = "replaced as its update block says"
		}
		e.Reason = fmt.Sprintf("runs on %s, and asks for others: its members would be %s", pal.CountGPUs(st.Holds()), become)
	default:
		if e.Decision != nil && e.Decision.Placed { // where it would go if nobody waited
			e.Decision = nil
		}
		e.Reason = fmt.Sprintf("runs on %s, and would run on as it is: what it asks for now does not fit: %s", pal.CountGPUs(st.Holds()), room.Reason)
	}
}
