// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import (
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// LackKind is the kind of a [Lack].
type LackKind string

// Lack is one thing that a node lacks for a group of a job.
type Lack struct {
	Kind LackKind `json:"kind"` // the kind of missing thing, such as driver or free-gpus
	// Task is the task that needs the missing thing, if only one task does.
	Task string `json:"task,omitempty"`
	// Name is the node's datacenter or pool; the driver, volume, device, resource or port that the
	// job requests; or Nomad's message.
	Name string `json:"name,omitempty"`
	// Attribute, Operator and Value are the parts of a constraint.
	Attribute string `json:"attribute,omitempty"`
	Operator  string `json:"operator,omitempty"`
	Value     string `json:"value,omitempty"`
	// Need is how much a member needs of the missing thing. For a port, Need is the port's number.
	// For a distinct_property, Need is the number of members that need different values. Have is
	// how many GPUs of one model the node has, or how many parts the node's GPUs have.
	Need int `json:"need,omitempty"`
	Have int `json:"have,omitempty"`
	// Threshold is the PM score above which GPUs do not count; 0 if outliers count, too.
	Threshold float64 `json:"threshold,omitempty"`
}

// Obstacle is a reason why a task group of a job cannot run on some nodes.
type Obstacle struct {
	Group string `json:"group"` // the task group that cannot run on the nodes
	Lack
	// What describes the obstacle.
	What string `json:"what"`
	// Nodes is how many nodes the obstacle excludes. If all nodes lack the same things, each
	// obstacle counts all nodes. Otherwise, a node counts only for the thing that most nodes lack.
	Nodes int `json:"nodes"`
	// Total is the number of nodes with GPUs. If the obstacle is Nomad's message, Total is the
	// number of nodes that Nomad evaluated. If a group without GPUs is too large, Total is the
	// number of nodes in the group's datacenters and pool.
	Total int `json:"total"`
	// Fault says what the nodes have instead, if no node can ever meet a constraint.
	Fault string `json:"fault,omitempty"`
	// Now reports whether the obstacle can end by itself, when jobs end or nodes come back.
	Now bool `json:"now,omitempty"`
	// Away reports whether the nodes are only down, draining or not eligible, or have an unhealthy
	// driver or device.
	Away bool `json:"-"`
}

// Reason returns the obstacle as a reason.
func (o Obstacle) Reason() reason.Reason {
	r := reason.Reason{Kind: reason.Obstacle, Group: o.Group, Cause: o.What, Nodes: o.Nodes, Total: o.Total}
	if o.Fault != "" {
		r = r.Over(reason.Unread(o.Fault))
	}
	return r
}

func (o Obstacle) String() string { return o.Reason().String() }

// Deployment is a service's current deployment in Nomad, or its last deployment if that deployment
// failed.
type Deployment struct {
	ID     string `json:"id"`     // the deployment's id in Nomad
	Status string `json:"status"` // its status in Nomad, such as running
	// Version is the version of the job that is deployed.
	Version uint64 `json:"version"`
	// Promote reports whether the deployment waits for somebody to promote it.
	Promote bool `json:"promote,omitempty"`
	// Promotable reports whether somebody must promote the deployment once its canaries are healthy.
	Promotable bool `json:"promotable,omitempty"`
	// Superseded reports whether the job has a newer version that Nomad has not evaluated yet.
	Superseded bool `json:"superseded,omitempty"`
}

// Explanation says why a job runs where it runs, or why it does not run.
type Explanation struct {
	Namespace string `json:"namespace"` // the job's namespace
	Job       string `json:"job"`       // the job's id
	State     State  `json:"state"`     // the job's state
	// Parent is the parameterized or periodic job that made this job.
	Parent string `json:"parent,omitempty"`
	// Runs counts the jobs that a parameterized or periodic job has made.
	Runs *Runs `json:"runs,omitempty"`
	// Reason is why the job is in its state.
	Reason reason.Reason `json:"reason,omitzero"`
	// Planned reports whether the explanation is a plan: it describes what would happen if the job,
	// or a changed form of it, were submitted now.
	Planned bool `json:"planned,omitempty"`
	// Outcome is how the job ended, if it has ended.
	Outcome *Outcome `json:"outcome,omitempty"`
	// Wait is the queue's answer about the job; nil if the job does not wait in the queue.
	Wait *queue.Wait `json:"wait,omitempty"`
	// WaitsFor is what the job waits for, according to the queue.
	WaitsFor reason.Reason `json:"waits_for,omitzero"`
	// StartFrom and StartTo are the range of the job's expected start, if there is a forecast.
	StartFrom time.Time `json:"start_from,omitzero"`
	StartTo   time.Time `json:"start_to,omitzero"`
	// Decision is the decision in force, or what would be decided now.
	Decision *pal.Decision `json:"decision,omitempty"`
	// Decided is when the decision in force was made. Ready is when the placer saw all members run.
	Decided time.Time `json:"decided,omitzero"`
	Ready   time.Time `json:"ready,omitzero"`
	// Restarted is the time when Nomad last restarted all members on the same GPUs, or started them
	// again after the gang had no members.
	Restarted time.Time `json:"restarted,omitzero"`
	// Mode is how tightly the job is tied to its GPUs (pal_pin): gpu, class or prefer.
	Mode string `json:"mode,omitempty"`
	// Predicted is the original choice, if Nomad gave the job other GPUs within its pins. If
	// Predicted is set, the decision has the GPUs that the job got.
	Predicted *pal.Choice `json:"predicted,omitempty"`
	// ClassFrom is the source of the application class.
	ClassFrom string `json:"class_from,omitempty"`
	// SpeedsFrom is the source of the job's speed on each GPU model.
	SpeedsFrom map[string]string `json:"speeds_from,omitempty"`
	// NeighboursFrom is the source of the cost of sharing a GPU with a neighbour of each class. The
	// cost of a missing class comes from the table of neighbours.
	NeighboursFrom map[pal.AppClass]string `json:"neighbours_from,omitempty"`

	// Note has further facts that matter for the job, such as its priority or a quota, separated by
	// "; ".
	Note string `json:"note,omitempty"`
	// Hold is who holds the job (nomad-pal hold), since when and why. A held job that runs keeps
	// running.
	Hold reason.Reason `json:"hold,omitzero"`
	// Obstacles are the reasons why nodes cannot run a job that cannot start.
	Obstacles []Obstacle `json:"obstacles,omitempty"`
	// Submitted is when the job began to wait; zero if unknown.
	Submitted time.Time `json:"submitted,omitzero"`
	// Holders are the jobs that hold GPUs for which the job waits. Remedies are changes that would
	// let a waiting job start now, or would let a job run that cannot run on this cluster as it is.
	Holders  *Holders        `json:"holders,omitempty"`
	Remedies []reason.Reason `json:"remedies,omitempty"`
	// Ask asks the user for an estimate if the run time of a waiting job is unknown.
	Ask string `json:"ask,omitempty"`
	// Try is a remedy in the form that explain -what-if accepts.
	Try string `json:"try,omitempty"`
	// Alternatives are other placements, for comparison.
	Alternatives []Alternative `json:"alternatives,omitempty"`
	// GPUNames maps the ids of the GPUs in this explanation to short names, which commands accept:
	// NODE:INDEX with nvidia-smi's number, or the beginning of the id if the number is unknown.
	GPUNames map[string]string `json:"gpu_names,omitempty"`
	// Failures are the job's members that failed, by try, the oldest first.
	Failures []Try `json:"failures,omitempty"`
	// Elastic is the size of an elastic gang.
	Elastic *queue.Size `json:"elastic,omitempty"`
	// Behind is true if the placer's view of the cluster is older than the job.
	Behind bool `json:"-"`
	// Leaving lists drained or disconnected nodes of the job's members, and its GPUs that are
	// unhealthy or gone, each with what happens to the affected members. For a service, Leaving
	// also lists windows that reserve the service's nodes now or within a day.
	Leaving []reason.Reason `json:"leaving,omitempty"`
	// Members are sentences on what happened to missing members, and on a service's deployment. Retry
	// reports whether members are missing that nomad-pal leaves to Nomad, because the job's members do
	// not need each other.
	Members []reason.Reason `json:"members,omitempty"`
	Retry   bool            `json:"retry,omitempty"`
	// Ran is the time when the last member ended, for a gang that ran and waits again.
	Ran time.Time `json:"ran,omitzero"`
	// StoppedWhy is why the placer stopped the job, if the placer stopped it.
	StoppedWhy reason.Reason `json:"stopped_why,omitzero"`
	// StartRun is the command that starts a run of a parameterized or periodic job.
	StartRun string `json:"start_run,omitempty"`
	// StoppedFor is the job (namespace/id) for which this job was stopped, if known.
	StoppedFor string `json:"stopped_for,omitempty"`
	// Deployment is the service's deployment, if it is active or has failed.
	Deployment *Deployment `json:"deployment,omitempty"`
	// EndFrom and EndTo are the range in which a running job is expected to end. EndWhy is what the
	// range is based on, or why the end is unknown.
	EndFrom time.Time `json:"end_from,omitzero"`
	EndTo   time.Time `json:"end_to,omitzero"`
	EndWhy  string    `json:"end_why,omitempty"`
	// Allocations are the job's live members.
	Allocations []Allocation `json:"allocations,omitempty"`
	// Live maps GPU ids to their current load, if it is known.
	Live map[string]Load `json:"live,omitempty"`
	// Idle maps the id of each idle GPU of the job to the time since which the GPU has been idle.
	Idle map[string]time.Time `json:"idle,omitempty"`
}

// Allocation is a live member, with the GPUs that Nomad allocated to it.
type Allocation struct {
	ID     string   `json:"id"`     // the allocation's id
	Group  string   `json:"group"`  // the member's task group
	Node   string   `json:"node"`   // name of the member's node; the node's id if the placer has not read the node
	Status string   `json:"status"` // Nomad's client status, such as running
	GPUs   []string `json:"gpus"`   // ids of the member's GPUs
	// Version is the version of the job that the member runs; missing if no deployment is shown.
	Version *uint64 `json:"version,omitempty"`
}

// RedactedFor returns the explanation as a user may see it. RedactedFor replaces the names of jobs
// in namespaces that the user may not see.
func (e Explanation) RedactedFor(sees Sees) *Explanation {
	if e.Wait != nil {
		now := sees.Wait(*e.Wait)
		e.Wait = &now
	}
	for _, r := range []*reason.Reason{&e.Reason, &e.WaitsFor, &e.StoppedWhy, &e.Hold} {
		*r = r.RedactedFor(sees.Name)
	}
	for _, rs := range []*[]reason.Reason{&e.Remedies, &e.Leaving, &e.Members} {
		*rs = reason.AllRedactedFor(*rs, sees.Name)
	}
	if e.Decision != nil {
		d := *e.Decision
		d.Reason = d.Reason.RedactedFor(sees.Name)
		e.Decision = &d
	}
	if e.Outcome != nil {
		o := *e.Outcome
		o.Reason = o.Reason.RedactedFor(sees.Name)
		e.Outcome = &o
	}
	e.StoppedFor = sees.Name(e.StoppedFor)
	if e.Holders != nil {
		h := *e.Holders
		h.Jobs = slices.Clone(h.Jobs)
		for i := range h.Jobs {
			h.Jobs[i].Job = sees.Name(h.Jobs[i].Job)
		}
		e.Holders = &h
	}
	return &e
}

// Holder is a job that holds GPUs that a waiting gang could use.
type Holder struct {
	// Job is the job that holds the GPUs, as namespace/id.
	Job string `json:"job"`
	// GPUs is the number of GPUs that the job holds and that the waiting gang could use.
	GPUs int `json:"gpus"`
	// Stopping reports whether the job's members were told to stop and have not ended yet.
	Stopping bool `json:"stopping,omitempty"`
	// Service jobs run until somebody stops them. Preemptible jobs may be stopped by the placer for
	// other jobs.
	Service     bool `json:"service,omitempty"`
	Preemptible bool `json:"preemptible,omitempty"`
	// EndFrom and EndTo are the range in which the job is expected to end. Both are zero if the
	// job's run time is unknown, if the job is stopping, or if it is a service.
	EndFrom time.Time `json:"end_from,omitzero"`
	EndTo   time.Time `json:"end_to,omitzero"`
	// Needed reports whether the waiting gang needs this job to end. Once all needed jobs have
	// ended, there is room for the gang. The needed jobs are the first ones of the list, apart from
	// jobs that Nomad placed by itself.
	Needed bool `json:"needed,omitempty"`
}

// Holders are the jobs that hold GPUs that a waiting gang could use.
type Holders struct {
	// Jobs are sorted: first stopping jobs, then jobs with an expected end (the earliest first),
	// then jobs without an expected end (the largest first), then services. Omitted counts the jobs
	// left out.
	Jobs    []Holder `json:"jobs,omitempty"`
	Omitted int      `json:"omitted,omitempty"`
	// Enough reports whether there is room for the gang once the needed jobs have ended.
	Enough bool `json:"enough,omitempty"`
}

// Alternative is another placement of a gang, for comparison.
type Alternative struct {
	// What is the placement's name. A running gang has "the best now".
	What string `json:"what"`
	*pal.Choice
}

// Outcome describes how a job ended, in Nomad's words.
type Outcome struct {
	// Status is complete, failed, stopped, or at rest (its author has scaled it to zero).
	Status string `json:"status"`
	// At is when the last member ended. For a job that is stopped or at rest, At is when somebody
	// stopped or scaled the job. For other jobs, At is zero if Nomad no longer has their
	// allocations.
	At time.Time `json:"at,omitzero"`
	// Reason is what Nomad reports about the members: how many are complete, and the exit code or
	// signal of a failed member.
	Reason reason.Reason `json:"reason"`
}

// AtRest is the status of a job that its author has scaled to zero.
const AtRest = "at rest"
