// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
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
func (r *Runs) Count(state State, outcome string) {
	switch {
	case state == Failed, state == Ended && outcome == "failed":
		r.Failed++
	case state == Ended && outcome == "stopped":
		r.Stopped++
	case state == Ended:
		r.Complete++
	case state == Waiting, state == Committing, state == Completing, state == Rejected,
		state == Unschedulable, state == Lost:
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
	if j.State == Template || j.State == Ended {
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

// JobStatus is the status of one job that the placer manages.
type JobStatus struct {
	Namespace string `json:"namespace"` // the job's namespace
	Job       string `json:"job"`       // the job's id
	State     State  `json:"state"`     // the job's state
	// Position is the job's position in the queue, counted from 1. Position is 0 if the job does
	// not wait, waits outside the queue (for its pal_after, for example), or could never run.
	Position int `json:"position,omitempty"`
	// User is the user from the job's pal_user.
	User string `json:"user,omitempty"`
	// Held reports whether somebody has put the job on hold.
	Held bool `json:"held,omitempty"`
	// Priority is the job's priority in the queue: the jobspec's priority, unless somebody has set
	// another priority.
	Priority int `json:"priority"`
	// GPUs is the number of GPUs that the job has or requests. Share is set if the job's GPUs are
	// parts of shared GPUs. Share is the fraction of a whole GPU that each part counts.
	GPUs  int     `json:"gpus"`
	Share float64 `json:"share,omitempty"`
	Class string  `json:"class,omitempty"` // application class; "" if the placer does not know it
	// Reason is the reason why the job waits or cannot be served. For a running job, Reason lists
	// the drained or disconnected nodes and the unhealthy GPUs of its members. Reason also mentions
	// canaries that run beside the old version.
	Reason reason.Reason `json:"reason,omitzero"`
	// Submitted is the time when the author submitted the job, or zero if the placer has isolated
	// the job after an internal error.
	Submitted time.Time `json:"submitted"`
	// StartFrom and StartTo are the range of the job's expected start, if there is a forecast.
	StartFrom time.Time `json:"start_from,omitzero"`
	StartTo   time.Time `json:"start_to,omitzero"`
	// Elastic is the size of an elastic gang.
	Elastic *queue.Size `json:"elastic,omitempty"`
	// Nodes is the number of nodes on which the job's members run. Started is the time when the
	// first member was placed.
	Nodes   int       `json:"nodes,omitempty"`
	Started time.Time `json:"started,omitzero"`
	// EndFrom and EndTo are the range of the job's expected end, if there is a forecast.
	EndFrom time.Time `json:"end_from,omitzero"`
	EndTo   time.Time `json:"end_to,omitzero"`
	// Parent is the parameterized or periodic job that created this job. Runs counts the runs of an
	// array, which are the jobs that Nomad has created from a parameterized or periodic job.
	Parent string `json:"parent,omitempty"`
	Runs   *Runs  `json:"runs,omitempty"`
}

// GPUsInTrouble counts, for each kind of trouble, the GPUs that have it. The placer does not choose
// unhealthy and quarantined GPUs, and chooses degraded GPUs last.
type GPUsInTrouble struct {
	Unhealthy   float64 `json:"unhealthy"`
	Quarantined float64 `json:"quarantined"`
	Degraded    float64 `json:"degraded"`
}

// Size returns the number of GPUs that the job has or requests. For a waiting elastic gang, Size
// returns a range, such as "2–8".
func (j JobStatus) Size() string {
	return InRange(j.LeastGPUs(), j.GPUs)
}

// LeastGPUs returns the number of GPUs that the job has, or the number that it needs to start.
func (j JobStatus) LeastGPUs() int {
	s := j.Elastic
	if s != nil && s.Members == 0 {
		return j.GPUs / s.Most * s.Least
	}
	return j.GPUs
}

// Amount converts a number of the job's GPUs, which can be parts of shared GPUs, to a number of
// whole GPUs.
func (j JobStatus) Amount(gpus int) float64 { return float64(gpus) * cmp.Or(j.Share, 1) }

// InRange formats a range as "2–8", or as "8" if both ends are equal.
func InRange(least, most int) string {
	if least == most {
		return strconv.Itoa(most)
	}
	return fmt.Sprintf("%d–%d", least, most)
}

// GPURange formats a range of GPUs.
func GPURange(least, most float64) string {
	if least == most {
		return reason.Amount(most)
	}
	return reason.Number(least) + "–" + reason.Number(most) + " GPUs"
}

// RedactedFor returns the status for a user who may see this job. RedactedFor hides the names of
// jobs in namespaces that the user may not see.
func (j JobStatus) RedactedFor(sees Sees) JobStatus {
	j.Reason = j.Reason.RedactedFor(sees.Name)
	return j
}
