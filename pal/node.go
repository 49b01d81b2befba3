// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

// GPU is one instance of a device group: a GPU, a MIG instance, or a part of a shared GPU.
type GPU struct {
	ID string
	// Scores are the raw PM scores per application class, indexed by [AppClass.Index]. Raw scores
	// predict how long a job takes. 0 means that the GPU was not measured.
	Scores [NumClasses]PMScore
	// Binned has one score for each application class. All GPUs of a variability class have the
	// same value in Binned.
	// Bin values are used to choose GPUs, but never to predict times (PAL §3.3). A GPU with 0
	// counts as the median, 1.
	Binned [NumClasses]PMScore
	// Classes are the published variability classes. 1 is the fastest class, and 0 means no class.
	Classes [NumClasses]uint8
	Health  Health
	// Degraded is why the GPU counts as degraded; "" if it does not. A degraded GPU has the slowest
	// bin and class, so it is chosen last.
	Degraded string
	// NUMA and Island are the NUMA node and the NVLink island within the node,
	// counted from 1; 0 means unknown.
	NUMA, Island uint16
}

// Health says why a GPU must not be chosen. The zero value is a GPU that can be chosen.
type Health struct {
	Unhealthy   bool
	Quarantined bool
	Unavailable bool // the node accepts no jobs, or unreported tasks may still run on the GPU
}

// DeviceGroup is a Nomad device group of one node: instances of one model. Nomad serves a device
// request from one group only.
type DeviceGroup struct {
	Name string // vendor/type/name: "nvidia/gpu/NVIDIA H200"
	GPUs []GPU
	// Shared is set if the instances are parts of one GPU. The parts of one GPU differ only in
	// their IDs.
	Shared bool
}

// Node is a Nomad client with its device groups.
type Node struct {
	ID, Name   string
	Rack       string // "": the node is a rack by itself
	Datacenter string
	Free       Resources // not yet allocated
	Groups     []DeviceGroup
}

// Resources are what a member of a gang needs besides its GPUs.
type Resources struct {
	CPU      int // MHz
	MemoryMB int
	DiskMB   int
	// PerNode is the maximum number of members on one node (1 with Nomad's distinct_hosts); 0 means
	// as many as fit. PerNode is not used in the free resources of a node.
	PerNode int
}

// Minus returns r - times × o, without PerNode. If `times` is negative, Minus adds.
func (r Resources) Minus(o Resources, times int) Resources {
	return Resources{CPU: r.CPU - times*o.CPU, MemoryMB: r.MemoryMB - times*o.MemoryMB, DiskMB: r.DiskMB - times*o.DiskMB}
}

// holds returns how many members with this need fit into r, but at most `limit`.
func (r Resources) holds(need Resources, limit int) int {
	if need == (Resources{}) {
		return limit // most jobs of the simulator need only GPUs
	}
	if need.PerNode > 0 {
		limit = min(limit, need.PerNode)
	}
	for _, d := range [3][2]int{{r.CPU, need.CPU}, {r.MemoryMB, need.MemoryMB}, {r.DiskMB, need.DiskMB}} {
		if d[1] > 0 {
			limit = min(limit, max(0, d[0]/d[1]))
		}
	}
	return limit
}
