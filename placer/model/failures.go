// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"cmp"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/failure"
)

// AvoidFor is how long a gang goes elsewhere, if it can, after a node failed it.
const AvoidFor = time.Hour

// FailedOn are the nodes, by name, on which members of a job failed lately. Where
// an unhealthy GPU was to blame that is kept out anyway, and a node that went down is
// as good as any other when it is back.
func (m *Model) FailedOn(k cluster.JobKey, now time.Time) map[string]bool {
	var nodes map[string]bool
	for _, f := range m.failuresOf(k) {
		if f.Unhealthy == nil && f.Reason != failure.NodeDown && now.Sub(f.At) < AvoidFor {
			nodes = mark(nodes, f.Node)
		}
	}
	return nodes
}

// failuresOf are the failures of a job's members with GPUs: as they were noted, or else as Nomad
// shows them. Only so many are noted in all, and a mass failure has more.
func (m *Model) failuresOf(k cluster.JobKey) (found []failure.Failure) {
	noted := map[string]bool{}
	for _, f := range m.Failures {
		if f.Namespace == k.Namespace && f.Job == k.ID {
			found, noted[f.Alloc] = append(found, f), true
		}
	}
	for _, a := range m.State.AllocsOf(k) {
		if (a.Client == api.AllocClientStatusFailed || a.Client == api.AllocClientStatusLost) && !noted[a.ID] && len(a.GPUs) > 0 {
			found = append(found, m.Diagnose(a))
		}
	}
	return found
}

// Diagnose finds the cause of a failed or lost allocation.
func (m *Model) Diagnose(a *cluster.Alloc) failure.Failure {
	gpus := m.State.OwnGPUs(a)
	f := failure.Diagnose(a, gpus, m.State.NodeName(a.Node), m.State.Unhealthy(gpus))
	if job := m.State.Jobs[a.Job]; job != nil && *job.JobModifyIndex <= a.CreateIndex {
		f.JobIndex = *job.JobModifyIndex
	}
	return f
}

// Try is a member that failed, and in which of the job's tries.
type Try struct {
	Try int `json:"try"`
	failure.Failure
}

// Tries are the members of a job that failed, as far as Nomad or the placer
// remembers them. All that Nomad placed for one registration of the job is one try, however
// often Nomad itself rescheduled. Else a member belongs to the next try if it was placed
// after the first member of the try before had ended: those of one try are placed together.
// What failed before the job was purged and run again was another job's.
func (m *Model) Tries(k cluster.JobKey) []Try {
	found := m.failuresOf(k)
	if job := m.State.Jobs[k]; job != nil && job.CreateIndex != nil {
		found = slices.DeleteFunc(found, func(f failure.Failure) bool { return 0 < f.Index && f.Index < *job.CreateIndex })
	}
	slices.SortFunc(found, func(a, b failure.Failure) int {
		return cmp.Or(a.Placed.Compare(b.Placed), a.At.Compare(b.At), cmp.Compare(a.Alloc, b.Alloc))
	})
	var out []Try
	try, index := 0, uint64(0) // of those placed last, and when the first of them ended
	var ended time.Time
	for i, f := range found {
		switch again := i == 0 || f.Placed.After(ended); {
		case again && (index == 0 || f.JobIndex != index):
			try, index, ended = try+1, f.JobIndex, f.At
		case again || f.At.Before(ended):
			ended = f.At
		}
		index = cmp.Or(index, f.JobIndex)
		out = append(out, Try{try, f})
	}
	return out
}
