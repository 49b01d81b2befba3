// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Outcome is how a job ended, in Nomad's words.
type Outcome struct {
	// Status is complete, failed, stopped or, where its author has scaled it to no members, at rest.
	Status string `json:"status"`
	// At is when the last member ended, or the job was stopped; zero if Nomad keeps
	// nothing to tell by.
	At time.Time `json:"at,omitzero"`
	// Reason is what Nomad tells of the members: exit code, signal, how many are complete.
	Reason string `json:"reason"`
}

// AtRest is the status of a job that has no members for now, as its author wants.
const AtRest = "at rest"

// OutcomeOf is how a job ended, by the last allocation for each of its members.
func OutcomeOf(m *model.Model, st gang.Observed) *Outcome {
	var failed *nomad.Alloc
	complete, ending, at := 0, 0, time.Time{}
	for _, a := range lastAllocs(m.State, st.Key, st.Job) {
		if ended := endOf(a); ended.After(at) {
			at = ended
		}
		switch {
		case a.Live():
			ending++
		case a.Client == api.AllocClientStatusComplete && a.Desired == api.AllocDesiredStatusRun:
			if wanted(st.Job, a) {
				complete++
			}
		case failedOrLost(a):
			if failed == nil || endOf(a).Before(endOf(failed)) || endOf(a).Equal(endOf(failed)) && a.ID < failed.ID {
				failed = a
			}
		}
	}
	o := &Outcome{Status: "failed", At: at, Reason: fmt.Sprintf("%d of %s complete", complete, membersAre(st.Want))}
	switch {
	case st.Want == 0 && !rewrite.Stopped(st.Job): // scaled to no members
		o.Status, o.At, o.Reason = AtRest, time.Unix(0, *st.Job.SubmitTime), nomad.NoMembers
	case complete >= st.Want:
		o.Status = "complete"
	case rewrite.Stopped(st.Job):
		o.Status, o.At = "stopped", time.Unix(0, *st.Job.SubmitTime)
	}
	if ending > 0 {
		o.Reason += fmt.Sprintf("; the tasks of %d are still ending, and hold their GPUs", ending)
	}
	if failed != nil && o.Status != "complete" {
		f := m.Diagnose(failed)
		o.Reason = fmt.Sprintf("%s on node %s; %s", f.Reason, f.Node, o.Reason)
	}
	return o
}

// lastAllocs are the last allocations for each of the job's members with GPUs, by their names:
// not those of a job of the same name that was purged before.
func lastAllocs(s *nomad.State, k nomad.JobKey, job *api.Job) map[string]*nomad.Alloc {
	last, groups := map[string]*nomad.Alloc{}, groupsWithGPUs(job)
	for _, a := range s.AllocsOf(k) {
		if was := last[a.Name]; groups[a.Group] && !ofPurged(a, job) && (was == nil || a.CreateIndex > was.CreateIndex) {
			last[a.Name] = a
		}
	}
	return last
}

// ofPurged says whether an allocation is of a job of the same name that was purged.
func ofPurged(a *nomad.Alloc, job *api.Job) bool {
	return job.CreateIndex != nil && a.CreateIndex < *job.CreateIndex
}

// endOf is when Nomad heard of an allocation last: of one that has ended, of its end.
func endOf(a *nomad.Alloc) time.Time { return time.Unix(0, a.ModifyTime) }

// membersSay says of a gang with pins how many of its members run.
func membersSay(s *nomad.State, st gang.Observed) string {
	complete, run, pending, again, behind, preempted, groups, before := 0, 0, 0, 0, 0, 0, groupsWithGPUs(st.Job), map[string]bool{}
	for _, a := range s.AllocsOf(st.Key) {
		before[a.Next] = before[a.Next] || a.Live()
	}
	for _, a := range s.AllocsOf(st.Key) {
		switch {
		case !groups[a.Group]:
		case a.FinishedIn(st.Job):
			complete++
		case a.Preempted(st.Job):
			preempted++
		case !a.Member():
		case a.Client != api.AllocClientStatusPending:
			run++
		case restarts(a):
			again++
		case before[a.ID]:
			behind++
		default:
			pending++
		}
	}
	complete = min(complete, st.Have)
	run = min(run, st.Have-complete) // canaries that are pending come on top
	again = min(again, st.Have-complete-run)
	behind = min(behind, st.Have-complete-run-again)
	pending = min(pending, st.Have-complete-run-again-behind)
	text := fmt.Sprintf("%d of %d members run", run, st.Want)
	if st.Want == 1 {
		text = fmt.Sprintf("%d of 1 member runs", run)
	}
	if again > 0 {
		text += fmt.Sprintf(", %d ended and %s started again by Nomad, as the restart block says", again, pal.Are(again))
	}
	if behind > 0 {
		text += fmt.Sprintf(", %d placed, and waiting for the end of those that they replace (kill_timeout)", behind)
	}
	if pending > 0 {
		text += fmt.Sprintf(", %d placed and pending: their images or files are being fetched, say", pending)
	}
	if complete > 0 {
		text += fmt.Sprintf(", %d complete", complete)
	}
	if preempted = min(preempted, st.Want-st.Have); preempted > 0 {
		text += fmt.Sprintf(", %d preempted by Nomad for jobs with a higher priority", preempted)
	}
	return text
}

// restarts says whether a task of a pending member has run before: Nomad's client starts it again.
func restarts(a *nomad.Alloc) bool {
	for _, t := range a.Tasks {
		if t.Restarts > 0 {
			return true
		}
	}
	return false
}

func membersAre(n int) string {
	if n == 1 {
		return "1 member is"
	}
	return fmt.Sprintf("%d members are", n)
}

// groupsWithGPUs are the groups whose members have GPUs.
func groupsWithGPUs(job *api.Job) map[string]bool {
	out := map[string]bool{}
	for _, g := range job.TaskGroups {
		out[*g.Name] = rewrite.GPUsPerMember(g) > 0
	}
	return out
}
