// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// OutcomeOf returns how a job ended, according to the last allocation of each of its members.
func OutcomeOf(m *model.Model, st gang.Observed) *palapi.Outcome {
	if cluster.Template(st.Job) { // a template has no members, and ends only if somebody stops it
		return &palapi.Outcome{Status: "stopped", At: time.Unix(0, *st.Job.SubmitTime), Reason: reason.Reason{Kind: reason.NoMoreRuns}}
	}
	var failed *cluster.Alloc
	complete := 0
	ending := 0
	at := time.Time{}
	for _, a := range lastAllocs(m.State, st.Key, st.Job) {
		ended := a.End()
		if ended.After(at) {
			at = ended
		}
		switch {
		case a.Live():
			ending++
		case a.Client == api.AllocClientStatusComplete && a.Desired == api.AllocDesiredStatusRun:
			if wanted(st.Job, a) {
				complete++
			}
		case a.Failed():
			if failed == nil || a.End().Before(failed.End()) || a.End().Equal(failed.End()) && a.ID < failed.ID {
				failed = a
			}
		}
	}
	o := &palapi.Outcome{Status: "failed", At: at, Reason: reason.Reason{Kind: reason.EndedComplete, Have: complete, Want: st.Want}}
	switch {
	case st.Want == 0 && !rewrite.Stopped(st.Job): // scaled to zero
		o.Status = palapi.AtRest
		o.At = time.Unix(0, *st.Job.SubmitTime)
		o.Reason = reason.Reason{Kind: reason.NoMembers, Cause: request.NoMembers}
	case complete >= st.Want:
		o.Status = "complete"
	case rewrite.Stopped(st.Job):
		o.Status, o.At = "stopped", time.Unix(0, *st.Job.SubmitTime)
	}
	if ending > 0 {
		o.Reason.Doing = &reason.Doing{Ending: ending}
	}
	if failed != nil && o.Status != "complete" {
		f := m.Diagnose(failed)
		o.Reason.Kind = reason.EndedFailed
		o.Reason.Cause = f.Reason
		o.Reason.Node = f.Node
	}
	return o
}

// lastAllocs returns the last allocation of each of the job's members with GPUs, by name.
// lastAllocs ignores allocations of a purged job of the same name.
func lastAllocs(s *cluster.State, k cluster.JobKey, job *api.Job) map[string]*cluster.Alloc {
	last, groups := map[string]*cluster.Alloc{}, groupsWithGPUs(job)
	for _, a := range s.AllocsOf(k) {
		was := last[a.Name]
		if groups[a.Group] && !a.OfPurged(job) && (was == nil || a.CreateIndex > was.CreateIndex) {
			last[a.Name] = a
		}
	}
	return last
}

// membersSay describes the state of the members of a gang with pins.
func membersSay(s *cluster.State, st gang.Observed) reason.Reason {
	var d reason.Doing
	groups, before := groupsWithGPUs(st.Job), map[string]bool{}
	for _, a := range s.AllocsOf(st.Key) {
		before[a.Next] = before[a.Next] || a.Live()
	}
	for _, a := range s.AllocsOf(st.Key) {
		switch {
		case !groups[a.Group]:
		case a.FinishedIn(st.Job):
			d.Complete++
		case a.PreemptedByNomad(st.Job):
			d.Preempted++
		case !a.Member():
		case a.Client != api.AllocClientStatusPending:
			d.Run++
		case a.Restarts() > 0: // Nomad's client is restarting a task of the member
			d.Restarting++
		case before[a.ID]:
			d.Replacing++
		default:
			d.Pending++
		}
	}
	left := st.Have
	for _, n := range []*int{&d.Complete, &d.Run, &d.Restarting, &d.Replacing, &d.Pending} { // st.Have does not count pending canaries
		*n = min(*n, left)
		left -= *n
	}
	d.Preempted = min(d.Preempted, max(0, st.Want-st.Have))
	return reason.Reason{Kind: reason.MembersRun, Want: st.Want, Doing: &d}
}

// membersLack says why a starting or running gang is incomplete. It returns an empty reason if all
// members run or are complete.
func membersLack(s *cluster.State, st gang.Observed) reason.Reason {
	if st.Nomad != palapi.Running && st.Nomad != palapi.Starting {
		return reason.Reason{}
	}
	r := membersSay(s, st)
	if r.Doing.Run+r.Doing.Complete < st.Want {
		return r
	}
	return reason.Reason{}
}

// groupsWithGPUs returns the groups whose members have GPUs.
func groupsWithGPUs(job *api.Job) map[string]bool {
	out := map[string]bool{}
	for _, g := range job.TaskGroups {
		out[*g.Name] = rewrite.GPUsPerMember(g) > 0
	}
	return out
}
