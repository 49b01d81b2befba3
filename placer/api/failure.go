// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import "time"

// Cause is the kind of fault that made an allocation fail.
type Cause string

// The causes.
const (
	// CauseInfrastructure means that a GPU, a node or a driver caused the failure. The placer tries the
	// job on other GPUs.
	CauseInfrastructure Cause = "infrastructure"
	// CauseUser means that the job's program caused the failure. Other GPUs seldom help.
	CauseUser Cause = "user"
	// CauseUnknown means that there is no evidence for either cause.
	CauseUnknown Cause = "unknown"
)

// Failure describes the failure or loss of an allocation that had GPUs.
type Failure struct {
	At     time.Time `json:"at"`              // when the allocation last changed in Nomad
	Index  uint64    `json:"index"`           // the allocation's ModifyIndex in Nomad
	Placed time.Time `json:"placed,omitzero"` // when the allocation was made
	// JobIndex is the job's JobModifyIndex, or 0 if the job has changed since the allocation was
	// made.
	JobIndex  uint64   `json:"job_index,omitempty"`
	Namespace string   `json:"namespace"` // the job's namespace
	Job       string   `json:"job"`       // the job's id
	Alloc     string   `json:"alloc"`     // the allocation's id
	Node      string   `json:"node"`      // the node's name, or its id if the node is unknown
	GPUs      []string `json:"gpus"`      // ids of the allocation's GPUs
	// Unhealthy lists the allocation's unhealthy GPUs. If the list is not empty, the allocation's
	// other GPUs are not suspects.
	Unhealthy []string `json:"unhealthy,omitempty"`
	Cause     Cause    `json:"cause"`               // infrastructure, user or unknown
	Reason    string   `json:"reason"`              // the cause in words
	ExitCode  int      `json:"exit_code,omitempty"` // exit code of the failed task; 0 if the exit is not the cause
	// Signal is the signal that ended the program, or 0 if no signal ended the program.
	Signal int `json:"signal,omitempty"`
	// Driver is true if the task driver could not start a task and its error message named none of
	// the task's GPUs. The cause can be the image, the node or the GPUs. So the GPUs are suspects,
	// just as they are when a program fails.
	Driver bool `json:"driver,omitempty"`
	// Named is true if the task driver's message named the GPUs in Unhealthy. A job's author can
	// forge such a message, for example by giving a command the name of a GPU.
	Named bool `json:"named,omitempty"`
	// OfTask is true if Reason is the message of a task's event. Such a message can name the task.
	OfTask bool `json:"-"`
	// GPUHours is the lost work: the allocation's age when it failed, times its number of GPUs.
	GPUHours float64 `json:"gpu_hours"`
}

// Quarantine keeps a GPU out of new placements for a while.
type Quarantine struct {
	Until time.Time `json:"until"` // when the quarantine ends, unless somebody lifts it earlier
	// Strikes is the number of strikes that count, or 0 if an operator began the quarantine. Each
	// further strike doubles the time in quarantine, up to a day.
	Strikes int       `json:"strikes"`
	Last    time.Time `json:"last"` // when a strike or an operator last began the quarantine
	// Reason is why the GPU is in quarantine, in words. It names no job and no task, unless an
	// operator gave the reason.
	Reason string `json:"reason"`
	// ByJobs is true if failures of jobs caused the quarantine, and false if the machine reported
	// the GPU.
	ByJobs bool `json:"by_jobs,omitempty"`
	// Operator is true if an operator put the GPU in quarantine. In this case, everybody who can
	// see the GPU can also read the reason.
	Operator bool `json:"operator,omitempty"`
	// Lifted is the time when an operator last lifted a quarantine of the GPU. Earlier failures no
	// longer count against the GPU.
	Lifted time.Time `json:"lifted,omitzero"`
}

// LongestQuarantine is the length of an operator's quarantine if the operator gives no time. The operator
// expects a quarantine without a time to last until somebody lifts it.
const LongestQuarantine = 100 * 365 * 24 * time.Hour

// Ahead reports whether the quarantine contains times after now. Such times were stored by a
// machine whose clock was ahead.
func (q Quarantine) Ahead(now time.Time) bool { return q.Last.After(now) || q.Lifted.After(now) }

// NotAhead returns the quarantine with all times after now replaced by now.
func (q Quarantine) NotAhead(now time.Time) Quarantine {
	ahead := q.Last.Sub(now)
	if ahead > 0 {
		q.Last, q.Until = q.Last.Add(-ahead), q.Until.Add(-ahead)
	}
	if q.Lifted.After(now) {
		q.Lifted = now
	}
	return q
}

// Endless reports whether the GPU is excluded until an operator lifts the quarantine.
func (q Quarantine) Endless() bool {
	return !q.Last.IsZero() && q.Until.Sub(q.Last) >= LongestQuarantine/2
}

// Try is one failure of a member, with the number of the try in which the member failed.
type Try struct {
	Try int `json:"try"` // the try's number, from 1, among the tries that are still known
	Failure
}
