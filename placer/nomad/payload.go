// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"maps"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// allocPayload is an allocation as lists and events carry it, or as it is read
// by itself.
type allocPayload struct {
	ID, Namespace, JobID, TaskGroup, NodeID, Name string
	DesiredStatus, ClientStatus, NextAllocation   string
	AllocatedResources                            *api.AllocatedResources
	TaskStates                                    map[string]*api.TaskState
	CreateTime, ModifyTime                        int64
	CreateIndex, ModifyIndex                      uint64
	JobVersion                                    *uint64                   // in lists
	Job                                           *struct{ Version uint64 } // read by itself
}

func (p *allocPayload) alloc() *Alloc {
	a := &Alloc{
		ID: p.ID, Job: JobKey{p.Namespace, p.JobID}, Group: p.TaskGroup, Name: p.Name, Node: p.NodeID,
		Desired: p.DesiredStatus, Client: p.ClientStatus, Tasks: saneTasks(p.TaskStates), Next: p.NextAllocation,
		CreateTime: p.CreateTime, ModifyTime: p.ModifyTime, CreateIndex: p.CreateIndex, ModifyIndex: p.ModifyIndex,
		Version: p.JobVersion,
	}
	if p.Job != nil {
		a.Version = &p.Job.Version
	}
	if r := p.AllocatedResources; r != nil {
		a.Used.DiskMB = clamp(r.Shared.DiskMB)
		for _, t := range r.Tasks {
			if t == nil {
				continue
			}
			a.Used.CPU += clamp(t.Cpu.CpuShares)
			a.Used.MemoryMB += clamp(t.Memory.MemoryMB)
			for _, d := range t.Devices {
				if d != nil && d.Vendor == attr.Vendor && d.Type == attr.Type {
					a.GPUs = append(a.GPUs, d.DeviceIDs...)
				}
			}
		}
		slices.Sort(a.GPUs)
	}
	return a
}

// saneTasks are the task states, which the client writes, without nil entries.
func saneTasks(tasks map[string]*api.TaskState) map[string]*api.TaskState {
	tasks = withoutNil(tasks)
	for name, t := range tasks {
		if slices.Contains(t.Events, nil) {
			copied := *t
			copied.Events = slices.DeleteFunc(slices.Clone(t.Events), func(e *api.TaskEvent) bool { return e == nil })
			tasks = maps.Clone(tasks)
			tasks[name] = &copied
		}
	}
	return tasks
}
