// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import (
	"fmt"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// ModelSpeed describes how fast the GPUs of a model run an application class.
type ModelSpeed struct {
	// Device is the name of the device group.
	Device string       `json:"device"`
	Class  pal.AppClass `json:"app_class"`
	// Rate is the median of the rates measured on GPUs of the model. Unit is its unit. GPUs is the
	// number of measured GPUs.
	Rate float64 `json:"rate"`
	Unit string  `json:"unit"`
	GPUs int     `json:"gpus"`
	// Speed is Rate divided by the rate of the cluster's fastest model. If Speed is 0.5, work takes
	// twice as long as on the fastest model.
	Speed float64 `json:"speed"`
}

// GPUState is the state of a GPU. If a GPU is in several states, only one of them counts: the state
// that comes first in the list of constants below. For example, an allocated GPU that is unhealthy
// counts as unhealthy.
type GPUState string

// These are the states of a GPU. A GPU is unavailable if its node accepts no jobs or has just come
// back, or if tasks of a purged job may still run on the GPU.
const (
	GPUUnhealthy   GPUState = "unhealthy"
	GPUQuarantined GPUState = "quarantined"
	GPUAllocated   GPUState = "allocated"
	GPUUnavailable GPUState = "unavailable"
	GPUFree        GPUState = "free"
)

// Load is the current load of a GPU. If the GPU does not report a value, the field is nil.
type Load struct {
	// At is the time when the plugin read the values.
	At time.Time `json:"at,omitzero"`
	// Utilization is the percentage of time during which a kernel ran.
	Utilization    *int64 `json:"utilization_percent,omitempty"`
	MemoryUsedMiB  *int64 `json:"memory_used_mib,omitempty"`  // GPU memory in use, in MiB
	MemoryTotalMiB *int64 `json:"memory_total_mib,omitempty"` // size of the GPU memory, in MiB
	TemperatureC   *int64 `json:"temperature_c,omitempty"`    // temperature, in °C
	PowerW         *int64 `json:"power_w,omitempty"`          // power drawn, in watts
	PowerLimitW    *int64 `json:"power_limit_w,omitempty"`    // enforced power limit, in watts
}

// Idle reports whether the GPU is known to compute nothing. Idle returns false if the utilization
// is unknown.
func (u Load) Idle() bool { return u.Utilization != nil && *u.Utilization == 0 }

// GPU is one GPU, as commands, the API and the page show it.
type GPU struct {
	ID     string `json:"id"`             // the GPU's id
	Node   string `json:"node"`           // its node's name
	Rack   string `json:"rack,omitempty"` // its node's rack, if known
	NodeID string `json:"node_id"`        // its node's id
	// Index is nvidia-smi's number of the GPU within its node; absent if the device plugin does not
	// publish the number. The parts of a shared GPU, and MIG instances, have their GPU's number.
	Index *int `json:"index,omitempty"`
	// BusID is the GPU's PCI address; absent if the device plugin does not publish the address.
	BusID string `json:"bus_id,omitempty"`
	// Position is the GPU's place among the GPUs of its node on the page's map, from 0.
	Position int    `json:"position"`
	Device   string `json:"device"` // device group: vendor/type/name
	// State is unhealthy, quarantined, allocated, unavailable or free: the first that applies.
	State   GPUState `json:"state"`
	Healthy bool     `json:"healthy"` // the device plugin reports the GPU as healthy
	// Job is the job that holds the GPU, as namespace/id.
	Job string `json:"job,omitempty"`
	// HeldSince is when Nomad created the job's allocation on the GPU; zero if the GPU is only
	// promised to the job.
	HeldSince time.Time `json:"held_since,omitzero"`
	// PMScores are the GPU's PM scores by application class, without the classes in which it was
	// not measured.
	PMScores map[pal.AppClass]pal.PMScore `json:"pm_scores,omitempty"`
	// Classes are the GPU's variability classes by application class, from 1 (the fastest) to 5.
	Classes map[pal.AppClass]uint8 `json:"classes,omitempty"`
	// Uncapped is set if the GPU stayed below its power limit while class A was measured, so the PM
	// score for class A says little about training.
	Uncapped  bool `json:"uncapped,omitempty"`
	Available bool `json:"available"` // free and usable; a window can still reserve the GPU
	// Unhealthy and Unavailable are the reasons why the placer does not choose the GPU. Degraded is
	// the reason why the placer chooses the GPU last. A reason is "" if it does not apply.
	Unhealthy   string `json:"unhealthy,omitempty"`
	Unavailable string `json:"unavailable,omitempty"`
	Degraded    string `json:"degraded,omitempty"`
	// OutlierFor are the application classes for which the GPU's PM score is above the
	// outlier_threshold.
	OutlierFor []pal.AppClass `json:"outlier_for,omitempty"`
	// Window is the maintenance window or reservation that reserves the GPU now, with its end.
	Window string `json:"window,omitempty"`
	// Quarantine is why the GPU is in quarantine, and until when.
	Quarantine *Quarantine `json:"quarantine,omitempty"`
	// Live is the GPU's current load, if requested. NotLive is why the GPU's load is unknown.
	Live    *Load  `json:"live,omitempty"`
	NotLive string `json:"not_live,omitempty"`
	// IdleSince is when an allocated GPU became idle; zero if the GPU is not idle, or if its load
	// is unknown.
	IdleSince time.Time `json:"idle_since,omitzero"`
}

// GPUFilter selects the GPUs that meet all of its conditions.
type GPUFilter struct {
	// Nodes are names or ids, or names as on the map of the page; empty for all.
	Nodes []string
	// Job selects the GPUs that a job (namespace/id) holds. ID selects one GPU.
	Job, ID string
	// Trouble selects GPUs that are unhealthy, degraded, or in quarantine.
	Trouble bool
	// Outliers selects GPUs whose PM score for some application class is above the
	// outlier_threshold.
	Outliers bool
	// Most is the maximum number of GPUs to list; 0 means no limit.
	Most int
}

// leastIDLength is the shortest length of a shortened id: "GPU-" and eight digits.
const leastIDLength = len("GPU-12345678")

// IDLength returns how many bytes at the beginning of the ids distinguish each GPU from all others,
// but at least leastIDLength. Parts of a GPU are distinguished by their numbers: see
// [attr.Shorten].
func IDLength(ids []string) int {
	ids = attr.GPUsOf(ids)
	n := leastIDLength
	for i := 1; i < len(ids); i++ {
		a, b := ids[i-1], ids[i]
		same := 0
		for same < len(a) && same < len(b) && a[same] == b[same] {
			same++
		}
		n = max(n, same+1)
	}
	return n
}

// GPUName returns a short name of a GPU, which commands accept: NODE:INDEX, with nvidia-smi's
// index. MIG instances and GPUs without an index have the first bytes of the id instead.
func GPUName(id, node string, index *int, length int) string {
	if index == nil || strings.HasPrefix(id, "MIG-") {
		return attr.Shorten(id, length)
	}
	return fmt.Sprintf("%s:%d%s", node, *index, strings.TrimPrefix(id, attr.GPUOf(id)))
}

// RedactedFor returns the GPU as a user may see it. The reason of an automatic quarantine can name
// jobs and tasks in any namespace, so only operators see it. Everybody sees the reason that an
// operator gave.
func (g GPU) RedactedFor(sees Sees, operator func() bool) GPU {
	g.Job = sees.Name(g.Job)
	if g.Quarantine != nil && !g.Quarantine.Operator && !operator() {
		q := *g.Quarantine
		q.Reason = "jobs failed on this GPU; only operators can see details"
		g.Quarantine = &q
	}
	return g
}
