// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/gang"
)

// Runs counts the runs of an array. The runs are the jobs that Nomad has created from a
// parameterized or periodic job and still has.
type Runs struct {
	// Running counts jobs that are starting, running or being stopped, and jobs that Nomad places
	// by itself. Waiting counts jobs that wait (even while their stopped members are ending), that
	// cannot be served, or that have lost members.
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	// Complete, Failed and Stopped count jobs that have ended or that the placer will not retry.
	Complete int `json:"complete"`
	Failed   int `json:"failed"`
	Stopped  int `json:"stopped"`
}

// Total returns the number of jobs.
func (r Runs) Total() int { return r.Running + r.Waiting + r.Complete + r.Failed + r.Stopped }

// GoOn reports whether some of the jobs have not ended. r can be nil.
func (r *Runs) GoOn() bool { return r != nil && r.Running+r.Waiting > 0 }

// String formats the counts, for example as "4 running, 90 waiting, 6 complete, of 100".
func (r Runs) String() string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{r.Running, "running"}, {r.Waiting, "waiting"}, {r.Complete, "complete"}, {r.Failed, "failed"}, {r.Stopped, "stopped"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return fmt.Sprintf("%s, of %d", strings.Join(parts, ", "), r.Total())
}

// Count counts a job. A job that has ended is counted by its outcome, and any other job by its
// state.
func (r *Runs) Count(state gang.State, outcome string) {
	switch {
	case state == gang.Failed, state == gang.Ended && outcome == "failed":
		r.Failed++
	case state == gang.Ended && outcome == "stopped":
		r.Stopped++
	case state == gang.Ended:
		r.Complete++
	case state == gang.Waiting, state == gang.Committing, state == gang.Completing, state == gang.Rejected,
		state == gang.Unschedulable, state == gang.Lost:
		r.Waiting++
	default:
		r.Running++
	}
}

// ByArray replaces the jobs of each array by one entry, in the place of the array's first job. The
// entry has the name of the parameterized or periodic job, the total numbers of GPUs and nodes, and
// the earliest times of submission and start. If all jobs have an expected end, the entry has the
// latest expected end. The entry has no size. All other values come from the
// array's first job. ByArray does not replace an array that has only one job. listed is a subset of
// all.
func ByArray(listed, all []JobStatus) []JobStatus {
	key := func(namespace, job string) [2]string { return [2]string{namespace, job} }
	runs := map[[2]string]*Runs{}
	for _, j := range all {
		if j.Runs != nil && j.Runs.Total() > 1 {
			runs[key(j.Namespace, j.Job)] = j.Runs
		}
	}
	at, out := map[[2]string]int{}, []JobStatus{}
	for _, j := range listed {
		k := key(j.Namespace, cmp.Or(j.Parent, j.Job))
		i, listed := at[k]
		switch {
		case runs[k] == nil:
			out = append(out, j)
		case listed && j.Parent != "":
			out[i].absorb(j)
		case j.Parent != "":
			at[k] = len(out)
			j.Job = j.Parent
			j.Parent = ""
			j.Runs = runs[k]
			out = append(out, j)
		case !listed: // the array itself; its elements can follow later
			at[k] = len(out)
			out = append(out, j)
		}
	}
	return out
}

// absorb adds another job of the array to the entry. If the entry still has only the values of the
// array itself, absorb replaces them with the values of the job.
func (j *JobStatus) absorb(o JobStatus) {
	if j.State == gang.Template || j.State == gang.Ended {
		o.Job = j.Job
		o.Parent = ""
		o.Runs = j.Runs
		*j = o
		return
	}
	j.GPUs = j.GPUs + o.GPUs
	j.Nodes = j.Nodes + o.Nodes
	j.Elastic = nil
	if o.Submitted.Before(j.Submitted) {
		j.Submitted = o.Submitted
	}
	if !o.Started.IsZero() && (j.Started.IsZero() || o.Started.Before(j.Started)) {
		j.Started = o.Started
	}
	switch {
	case j.EndTo.IsZero() || o.EndTo.IsZero():
		j.EndFrom, j.EndTo = time.Time{}, time.Time{} // unknown
	case o.EndTo.After(j.EndTo):
		j.EndFrom, j.EndTo = o.EndFrom, o.EndTo
	}
}
