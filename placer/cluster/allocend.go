// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Failed reports whether the allocation was lost with its node, or one of its tasks failed.
func (a *Alloc) Failed() bool {
	return a.Client == api.AllocClientStatusFailed || a.Client == api.AllocClientStatusLost
}

// End returns the time at which the allocation's last task ended, according to the client's events.
// If no event shows the end, because the allocation is lost or its machine crashed, End returns the
// time at which Nomad learned of the end. For an allocation that has not ended, End returns a time
// at which the allocation still ran.
func (a *Alloc) End() time.Time {
	heard, last := time.Unix(0, a.ModifyTime), int64(0)
	for _, t := range a.Tasks {
		at, began := taskEnd(t)
		if at == 0 && began {
			return heard
		}
		last = max(last, at)
	}
	at := time.Unix(0, last)
	if last > a.CreateTime && at.Before(heard) && a.Client != api.AllocClientStatusLost {
		return at
	}
	return heard
}

// Restarts returns how often Nomad's client has restarted tasks of the allocation.
func (a *Alloc) Restarts() (n uint64) {
	for _, t := range a.Tasks {
		n += t.Restarts
	}
	return n
}

// OfPurged reports whether the allocation belongs to a purged job that had the same name as job.
func (a *Alloc) OfPurged(job *api.Job) bool {
	return job.CreateIndex != nil && a.CreateIndex < *job.CreateIndex
}

// taskEnd returns the time at which a task ended, according to its events, or 0 if no event shows
// the end. began reports whether the task had started.
func taskEnd(t *api.TaskState) (at int64, began bool) {
	for _, e := range slices.Backward(t.Events) {
		switch e.Type {
		case api.TaskTerminated, api.TaskKilled, api.TaskNotRestarting, api.TaskDriverFailure, api.TaskSetupFailure, api.TaskFailedValidation, api.TaskArtifactDownloadFailed:
			return e.Time, true
		case api.TaskStarted, api.TaskRestarting:
			return 0, true
		}
	}
	return 0, false
}
