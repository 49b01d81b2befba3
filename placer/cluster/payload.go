// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// A client's data about its node and tasks contains times. Nomad's encoder (1.11.3) writes years
// after 9999 in a form that no Go reader accepts, so one such client would make the list of all
// nodes or all allocations unreadable. The placer needs none of these times, so it does not read
// them. The times of a task's events are safe, because they are numbers.

// ignored is a part of an answer that the placer does not read.
type ignored struct{}

func (*ignored) UnmarshalJSON([]byte) error { return nil }

// NodeStub has the fields that the placer reads from an entry in Nomad's list of nodes.
type NodeStub struct {
	ID, Name      string
	ModifyIndex   uint64
	NodeResources *struct {
		Devices []*struct{ Vendor, Type string }
	}
}

// HasGPUs reports whether the entry shows GPUs.
func (n *NodeStub) HasGPUs() bool {
	return n != nil && n.NodeResources != nil && slices.ContainsFunc(n.NodeResources.Devices, func(d *struct{ Vendor, Type string }) bool {
		return d != nil && attr.IsGPU(d.Vendor, d.Type)
	})
}

// JobStub has the fields that the placer reads from an entry in Nomad's list of jobs.
type JobStub struct {
	ID, Namespace string
	ModifyIndex   uint64
}

// Key returns the key of the job.
func (j *JobStub) Key() JobKey { return JobKey{j.Namespace, j.ID} }

// NodePayload is a node from a single read or from an event.
type NodePayload struct {
	api.Node
	Drivers              map[string]*driverPayload
	CSINodePlugins       map[string]*csiPayload
	DrainStrategy        *drainPayload
	Events, LastDrain    ignored
	CSIControllerPlugins ignored
	HostNetworks, Links  ignored
}

// drainPayload is the deadline of a drain. The client of a new node can write this field too, so
// the times may be unreadable.
type drainPayload struct {
	Deadline      time.Duration
	ForceDeadline readableTime
}

// readableTime is a time that becomes zero if it cannot be parsed.
type readableTime struct{ time.Time }

func (t *readableTime) UnmarshalJSON(text []byte) error {
	if t.Time.UnmarshalJSON(text) != nil {
		t.Time = time.Time{}
	}
	return nil
}

type driverPayload struct {
	api.DriverInfo
	UpdateTime ignored
}

type csiPayload struct {
	api.CSIInfo
	UpdateTime ignored
}

// AsNode converts the payload to an [api.Node]. AsNode returns nil if p is nil.
func (p *NodePayload) AsNode() *api.Node {
	if p == nil {
		return nil
	}
	n := p.Node
	d := p.DrainStrategy
	if d != nil {
		n.DrainStrategy = &api.DrainStrategy{DrainSpec: api.DrainSpec{Deadline: d.Deadline}, ForceDeadline: d.ForceDeadline.Time}
	}
	n.Drivers = map[string]*api.DriverInfo{}
	for name, d := range p.Drivers {
		if d != nil {
			n.Drivers[name] = &d.DriverInfo
		}
	}
	n.CSINodePlugins = map[string]*api.CSIInfo{}
	for name, c := range p.CSINodePlugins {
		if c != nil {
			n.CSINodePlugins[name] = &c.CSIInfo
		}
	}
	return &n
}

// taskPayload is a task's state without its times.
type taskPayload struct {
	api.TaskState
	LastRestart, StartedAt, FinishedAt ignored
}

// Unreadable reports whether the error means that Nomad answered but its answer could not be
// parsed.
func Unreadable(err error) bool {
	var kind *json.UnmarshalTypeError
	var at *time.ParseError
	return errors.Is(err, ErrMalformed) || errors.As(err, &kind) || errors.As(err, &at)
}

// AllocPayload is an allocation from a list, an event or a single read.
type AllocPayload struct {
	ID, Namespace, JobID, TaskGroup, NodeID, Name string
	DesiredStatus, ClientStatus, NextAllocation   string
	DesiredDescription                            string
	AllocatedResources                            *api.AllocatedResources
	TaskStates                                    map[string]*taskPayload
	CreateTime, ModifyTime                        int64
	CreateIndex, ModifyIndex                      uint64
	JobVersion                                    *uint64                   // from a list
	Job                                           *struct{ Version uint64 } // from a single read
}

// lostWithNode is the description that Nomad gives to an allocation that was lost with its node.
// Nomad has replaced the allocation or will replace it. So the placer does not count the allocation
// as finished, even if the client comes back and reports success. The scenarios "lost and finished"
// and "lost and failed" test this.
const lostWithNode = "alloc is lost since its node is down"

// AsAlloc converts the payload to an [Alloc]. AsAlloc limits the amounts and sorts the GPUs. The
// allocation's version comes from JobVersion in a list, and from Job in a single read. An
// allocation that was lost with its node stays lost, whatever its client reports later.
func (p *AllocPayload) AsAlloc() *Alloc {
	a := &Alloc{
		ID: p.ID, Job: JobKey{p.Namespace, p.JobID}, Group: p.TaskGroup, Name: p.Name, Node: p.NodeID,
		Desired: p.DesiredStatus, Client: p.ClientStatus, Tasks: sanitizeTasks(p.TaskStates), Next: p.NextAllocation,
		CreateTime: p.CreateTime, ModifyTime: p.ModifyTime, CreateIndex: p.CreateIndex, ModifyIndex: p.ModifyIndex,
		Version: p.JobVersion,
	}
	if p.Job != nil {
		a.Version = &p.Job.Version
	}
	if p.DesiredDescription == lostWithNode && !a.Live() {
		a.Reported = a.Client != api.AllocClientStatusLost
		a.Client = api.AllocClientStatusLost
	}
	r := p.AllocatedResources
	if r != nil {
		a.Used.DiskMB = clamp(r.Shared.DiskMB)
		for _, p := range r.Shared.Ports {
			a.Ports = append(a.Ports, p.Value)
		}
		for _, t := range r.Tasks {
			if t == nil {
				continue
			}
			a.Used.CPU += clamp(t.Cpu.CpuShares)
			a.Used.MemoryMB += clamp(t.Memory.MemoryMB)
			for _, d := range t.Devices {
				if d != nil && attr.IsGPU(d.Vendor, d.Type) {
					a.GPUs = append(a.GPUs, d.DeviceIDs...)
				}
			}
		}
		slices.Sort(a.GPUs)
	}
	return a
}

// sanitizeTasks returns the task states without nil entries, which a client may have written.
func sanitizeTasks(tasks map[string]*taskPayload) map[string]*api.TaskState {
	out := make(map[string]*api.TaskState, len(tasks))
	for name, t := range tasks {
		if t == nil {
			continue
		}
		t.Events = slices.DeleteFunc(t.Events, func(e *api.TaskEvent) bool { return e == nil })
		out[name] = &t.TaskState
	}
	return out
}
