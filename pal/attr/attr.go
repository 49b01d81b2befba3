// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package attr names the device attributes that the device plugin publishes and the placer reads.
// The package also defines how the values are written as text.
//
// Nomad shares attributes between all instances of a device group, so data about single GPUs is
// published as lists of instance ids. The names of lists start with "unique.", because Nomad
// ignores such attributes when it computes a node's class. Without this prefix, each node would get
// a class of its own.
//
// For every list, the plugin also publishes the number of its entries, under a name without
// "unique.". Nomad caches, per computed class, whether a node's devices fit. The number of entries
// puts nodes with an empty list into a class of their own.
package attr

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Vendor and type of the device groups, as nomad-device-nvidia publishes them. The name of a group
// is the GPU model.
const (
	Vendor = "nvidia"
	Type   = "gpu"
	// SharedType is the type of a group whose instances are parts of GPUs. SharedType differs from
	// [Type], because in Nomad a request for "nvidia/gpu" matches every group of that type,
	// whatever the group's name.
	SharedType = "gpu.shared"
	// SharedSuffix follows the model in the name of a shared group.
	SharedSuffix = "-SHARED"
)

// Attributes of a device group, in addition to the nine attributes that nomad-device-nvidia
// publishes.
const (
	// Count (Int) is the number of instances in the group. HealthyCount (Int) is the number of
	// healthy instances.
	Count        = "count"
	HealthyCount = "healthy_count"
	// Raw (String) holds every accepted measurement: see [FormatMeasurements].
	Raw = "unique.variability_raw"
	// Rates (String) holds measured rates in the form of [Raw]. Unlike times, rates are comparable
	// across models. [RateUnit] returns their units.
	Rates = "unique.measured_rates"
	// Scores (String) holds PM scores in the form of [Raw], if the plugin has a profile.
	Scores = "unique.variability_scores"
	// Reference (String) says what the scores are relative to. The value of Reference is one of the
	// Reference… constants.
	Reference = "variability_reference"
	// ProfileVersion (Int) is the version of the profile in use. A plugin without a profile does
	// not publish this attribute.
	ProfileVersion = "variability_profile_version"
	// For groups of [SharedType], Sharing (String) is how their GPUs are shared: "time-slicing"
	// or "mps". Replicas (Int) is the number of parts per GPU. MemoryTotal (Int, MiB) is the
	// memory of a whole GPU.
	Sharing     = "sharing"
	Replicas    = "replicas"
	MemoryTotal = "memory_total"
	// Indexes (String) has nvidia-smi's number of each GPU: see [FormatIndexes].
	Indexes = "unique.gpu_indexes"
	// FabricClique (String) is "<cluster uuid>.<clique id>" on multi-node NVLink.
	FabricClique = "fabric_clique"
)

// Values of [Reference].
const (
	ReferenceProfile = "profile" // the cluster's profile, from Nomad
	ReferenceFile    = "file"    // a profile that the plugin was given as a file
	ReferenceNode    = "node"    // the median of this node's own GPUs
	ReferenceNone    = "none"
)

// Further attributes of a model, for constraints in jobs.
const (
	Architecture    = "architecture" // String: "hopper"
	ComputeMajor    = "compute_major"
	ComputeMinor    = "compute_minor"
	CUDADriverMajor = "cuda_driver_major" // newest CUDA version that the driver supports
	CUDADriverMinor = "cuda_driver_minor"
	MIGProfile      = "mig_profile" // String: "3g.20gb"
	// Degraded (String) lists the instances that work with a fault: they are slowed by heat, or a
	// link is down. DegradedCount (Int) is the number of these instances.
	Degraded      = "unique.degraded"
	DegradedCount = "degraded_count"
	// DegradedPrefix begins the health description of a degraded instance. The reasons
	// follow, joined by commas.
	DegradedPrefix = "degraded:"
	// Hidden (String) names the node's GPUs that the driver lists without an identity. If there are
	// no such GPUs, the attribute is absent.
	Hidden = "unique.hidden"
	// Unkept (String) says what the plugin cannot store, and why. The text does not survive a
	// restart of the plugin. If the plugin can store everything, the attribute is absent.
	Unkept = "unique.unkept"
)

// List returns the name of the attribute that lists the instances whose variability class for the
// application class is at most k (1 is the fastest).
func List(c pal.AppClass, k int) string {
	return fmt.Sprintf("unique.variability_%s_le_%d", strings.ToLower(string(c)), k)
}

// ListCount returns the name of the Int attribute with the number of healthy instances that the
// attribute [List](c, k) lists.
func ListCount(c pal.AppClass, k int) string {
	return fmt.Sprintf("variability_%s_le_%d_count", strings.ToLower(string(c)), k)
}

// NUMA returns the name of the attribute that lists the instances of NUMA node n.
func NUMA(n int) string { return fmt.Sprintf("unique.numa_%d", n) }

// NUMACount returns the name of the attribute with the number of instances in NUMA node n.
func NUMACount(n int) string { return fmt.Sprintf("numa_%d_count", n) }

// Island returns the name of the attribute that lists the instances of NVLink or NVSwitch island n.
func Island(n int) string { return fmt.Sprintf("unique.nvlink_island_%d", n) }

// IslandCount returns the name of the attribute with the number of instances in island n.
func IslandCount(n int) string { return fmt.Sprintf("nvlink_island_%d_count", n) }

// JoinIDs writes a list attribute: ids joined by commas, in the order given.
func JoinIDs(ids []string) string { return strings.Join(ids, ",") }

// SplitIDs reads a list attribute; the empty string is the empty list.
func SplitIDs(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// RateUnit returns the unit of [Rates] for a class. The unit depends on the resource that limits
// the class.
func RateUnit(c pal.AppClass) string {
	switch c {
	case pal.ClassA, pal.ClassB:
		return "TFLOP/s"
	case pal.ClassC:
		return "GB/s"
	case pal.ClassD:
		return "Gload/s"
	}
	return ""
}

// The statistics that the placer reads. nomad-device-nvidia uses the same names.
const (
	StatUtilization = "GPU utilization"
	StatMemory      = "Memory state"
	StatTemperature = "Temperature"
	StatPower       = "Power usage"
)

// partMark separates a GPU's id from the number of the part.
const partMark = "::"

// PartID returns the instance id of part n of a shared GPU.
func PartID(gpu string, n int) string { return fmt.Sprint(gpu, partMark, n) }

// IsGPU reports whether a device of the vendor and type is a GPU, or a part of a GPU.
func IsGPU(vendor, kind string) bool {
	return vendor == Vendor && (kind == Type || kind == SharedType)
}

// ModelOf returns the GPU model of a device group: its name, without the suffix of shared groups.
func ModelOf(kind, name string) string {
	i := strings.LastIndex(name, SharedSuffix)
	if kind == SharedType && i >= 0 {
		return name[:i]
	}
	return name
}

// GPUOf returns the id of the GPU or MIG instance to which a part belongs. For an instance that is
// not a part, GPUOf returns the instance's own id.
func GPUOf(instance string) string {
	gpu, _, _ := strings.Cut(instance, partMark)
	return gpu
}

// Begins reports whether an abbreviated id selects the instance. For example, "GPU-8d3f" selects
// the GPU and all of its parts; "GPU-8d3f::1" selects only part 1.
func Begins(instance, beginning string) bool {
	gpu, part, _ := strings.Cut(instance, partMark)
	begins, number, ofPart := strings.Cut(beginning, partMark)
	return strings.HasPrefix(gpu, begins) && (!ofPart || number == part)
}

// Shorten cuts the GPU's id within an instance's id to at most n bytes.
func Shorten(instance string, n int) string {
	gpu := GPUOf(instance)
	return gpu[:min(len(gpu), n)] + instance[len(gpu):]
}

// GPUsOf lists the GPUs of the instances, sorted and without duplicates.
func GPUsOf(instances []string) []string {
	gpus := make([]string, len(instances))
	for i, id := range instances {
		gpus[i] = GPUOf(id)
	}
	slices.Sort(gpus)
	return slices.Compact(gpus)
}
