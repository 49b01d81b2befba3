// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// AsksSince is since when the job asks for GPUs: since its author registered it, or
// since the jobs have finished that it comes after.
func (g *Gang) AsksSince() time.Time {
	if submitted := g.Submitted(); submitted.After(g.eligible) {
		return submitted
	}
	return g.eligible
}

// deadline is by when it is to have ended, in the queue's time; 0: no deadline. It
// counts from the registration by its author, not from when the placer saw it.
func (g *Gang) deadline() time.Duration {
	at, ok := g.Request.Hints.DeadlineOf(g.Submitted())
	if !ok {
		return 0
	}
	return QueueTime(at)
}

// array is the parameterized or periodic job that it is a child of; "" for none.
func (g *Gang) array() string {
	if !nomad.Child(g.Job) {
		return ""
	}
	return g.Key.Namespace + "/" + *g.Job.ParentID
}

// FinishedWell says whether all members of a dead batch job did their work, and when the
// last had. Stopping a job makes one more version of it.
func FinishedWell(job *api.Job, as []*nomad.Alloc) (at time.Time, ok bool) {
	version := *job.Version
	if stopped(job) && version > 0 {
		version--
	}
	done := map[string]map[string]bool{} // by group, the names of members
	for _, a := range as {
		if *a.Version != version && *a.Version != *job.Version || a.Client != api.AllocClientStatusComplete || !endedByThemselves(a.Tasks) {
			continue
		}
		if done[a.Group] == nil {
			done[a.Group] = map[string]bool{}
		}
		done[a.Group][a.Name] = true
		if end := time.Unix(0, a.ModifyTime); end.After(at) {
			at = end
		}
	}
	for _, g := range job.TaskGroups {
		if len(done[*g.Name]) < rewrite.Members(g) {
			return at, false
		}
	}
	return at, true
}

// FinishedEarlier says the same of one that was stopped because its members had done their
// work in an earlier version of it.
func FinishedEarlier(job *api.Job, as []*nomad.Alloc, versions map[uint64]*api.Job) (at time.Time, ok bool) {
	for v, last := range finishedVersions(job, as, versions) {
		if leadsTo(versions, v, last, job) && last.at.After(at) {
			at, ok = last.at, true
		}
	}
	return at, ok
}
