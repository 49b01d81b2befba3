// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"cmp"
	"slices"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/failure"
)

// AvoidFor is how long a gang avoids a node on which it failed, if other nodes have room.
const AvoidFor = time.Hour

// FailedOn returns the names of nodes on which members of a job failed recently. FailedOn leaves
// out failures caused by an unhealthy GPU, because the placer already excludes this GPU. FailedOn
// also leaves out failures caused by a node that went down, because such a node is as good as any
// other node once it is back.
func (m *Model) FailedOn(k cluster.JobKey, now time.Time) map[string]bool {
	nodes := map[string]bool{}
	for _, f := range m.failuresOf(k) {
		if f.Unhealthy == nil && f.Reason != failure.NodeDown && now.Sub(f.At) < AvoidFor {
			nodes[f.Node] = true
		}
	}
	return nodes
}

// failuresOf returns the recorded failures of a job's members with GPUs. For failed allocations
// without a recorded failure, failuresOf returns the data that Nomad still has. Not every failure
// is recorded, because a mass failure can exceed the limit of the record.
func (m *Model) failuresOf(k cluster.JobKey) (found []palapi.Failure) {
	noted := map[string]bool{}
	for _, f := range m.Failures {
		if f.Namespace == k.Namespace && f.Job == k.ID {
			found, noted[f.Alloc] = append(found, f), true
		}
	}
	for _, a := range m.State.AllocsOf(k) {
		if a.Failed() && !noted[a.ID] && len(a.GPUs) > 0 {
			found = append(found, m.Diagnose(a))
		}
	}
	return found
}

// Diagnose finds the cause of a failed or lost allocation.
func (m *Model) Diagnose(a *cluster.Alloc) palapi.Failure {
	gpus := m.State.OwnGPUs(a)
	f := failure.Diagnose(a, gpus, m.State.Nodes.Name(a.Node), m.State.Unhealthy(gpus))
	job := m.State.Jobs[a.Job]
	if job != nil && *job.JobModifyIndex <= a.CreateIndex {
		f.JobIndex = *job.JobModifyIndex
	}
	return f
}

// Tries returns the failures of the job's members, if Nomad or the placer still has data about
// them. One try includes everything that Nomad placed for one registration of the job, even if
// Nomad rescheduled members. If the registration is unknown, a member belongs to the current try if
// it was placed before the first member of the try ended. If the job was purged and run again,
// failures before the purge do not count.
func (m *Model) Tries(k cluster.JobKey) []palapi.Try {
	found := m.failuresOf(k)
	job := m.State.Jobs[k]
	if job != nil && job.CreateIndex != nil {
		found = slices.DeleteFunc(found, func(f palapi.Failure) bool { return 0 < f.Index && f.Index < *job.CreateIndex })
	}
	slices.SortFunc(found, func(a, b palapi.Failure) int {
		return cmp.Or(a.Placed.Compare(b.Placed), a.At.Compare(b.At), cmp.Compare(a.Alloc, b.Alloc))
	})
	var out []palapi.Try
	try, index := 0, uint64(0) // of the current try; ended is when its first member ended
	var ended time.Time
	for i, f := range found {
		again := i == 0 || f.Placed.After(ended)
		switch {
		case again && (index == 0 || f.JobIndex != index):
			try++
			index = f.JobIndex
			ended = f.At
		case again || f.At.Before(ended):
			ended = f.At
		}
		index = cmp.Or(index, f.JobIndex)
		out = append(out, palapi.Try{Try: try, Failure: f})
	}
	return out
}
