// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// Capacity returns a node's processor time, memory and disk for allocations, bounded so that sums
// do not overflow.
func Capacity(n *api.Node) pal.Resources {
	r := n.NodeResources
	t := pal.Resources{CPU: clamp(r.Cpu.CpuShares), MemoryMB: clamp(r.Memory.MemoryMB), DiskMB: clamp(r.Disk.DiskMB)}
	res := n.ReservedResources
	if res != nil {
		t.CPU -= clamp(res.Cpu.CpuShares)
		t.MemoryMB -= clamp(res.Memory.MemoryMB)
		t.DiskMB -= clamp(res.Disk.DiskMB)
	}
	return t
}

// DevicesOf returns the node's groups of devices.
func DevicesOf(n *api.Node) []*api.NodeDeviceResource {
	if n.NodeResources == nil {
		return nil
	}
	return n.NodeResources.Devices
}

// NotReady returns why Nomad places no new allocations on a node, or "" if Nomad can place some.
func NotReady(n *api.Node) string {
	switch {
	case n.Status != api.NodeStatusReady:
		return "the node is " + n.Status
	case n.Drain:
		return "the node is draining"
	case n.SchedulingEligibility != api.NodeSchedulingEligible:
		return "the node is not eligible for scheduling"
	}
	return ""
}

// TextOf returns a text attribute of a device group, or "" if the group has no such attribute.
func TextOf(d *api.NodeDeviceResource, name string) string {
	a := d.Attributes[name]
	if a != nil && a.StringVal != nil {
		return *a.StringVal
	}
	return ""
}

// GPUNodes returns the nodes that own GPUs, sorted by name, then by id. Each node has only the GPUs
// that it owns.
func (s *State) GPUNodes() []*api.Node {
	if s.sorted != nil {
		return s.sorted
	}
	nodes, conflicts := []*api.Node{}, map[conflict][]string{}
	for _, n := range s.Nodes {
		if len(GPUDevices(n)) == 0 {
			continue
		}
		n = s.owned(n, conflicts)
		if n != nil {
			nodes = append(nodes, n)
		}
	}
	s.warn(conflicts)
	slices.SortFunc(nodes, func(a, b *api.Node) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	s.sorted = nodes
	return nodes
}

func isGPU(d *api.NodeDeviceResource) bool {
	return d != nil && attr.IsGPU(d.Vendor, d.Type)
}

// IsMIG reports whether a device group consists of MIG instances. nomad-device-nvidia shows MIG only
// in the group's name.
func IsMIG(d *api.NodeDeviceResource) bool {
	return strings.Contains(d.Name, " MIG ") || d.Attributes[attr.MIGProfile] != nil
}

// GPUDevices returns the node's groups of GPUs, sorted by name. The parts of each shared GPU form a
// separate group, because all parts that a member gets are of one GPU.
func GPUDevices(n *api.Node) []*api.NodeDeviceResource {
	if n.NodeResources == nil {
		return nil
	}
	ds := slices.DeleteFunc(slices.Clone(n.NodeResources.Devices), func(d *api.NodeDeviceResource) bool { return !isGPU(d) })
	slices.SortStableFunc(ds, func(a, b *api.NodeDeviceResource) int { return strings.Compare(a.Name, b.Name) })
	if !slices.ContainsFunc(ds, func(d *api.NodeDeviceResource) bool { return d.Type == attr.SharedType }) {
		return ds
	}
	var out []*api.NodeDeviceResource
	for _, d := range ds {
		out = append(out, eachGPU(d)...)
	}
	return out
}

// SlotsOf returns where each instance of a group is in its node.
func SlotsOf(d *api.NodeDeviceResource) map[string]attr.Slot {
	indexes, out := attr.ParseIndexes(TextOf(d, attr.Indexes)), make(map[string]attr.Slot, len(d.Instances))
	for _, in := range d.Instances {
		slot := attr.Slot{BusID: attr.BusID(busID(in))}
		if index, ok := indexes[attr.GPUOf(in.ID)]; ok {
			slot.Index = &index
		}
		out[in.ID] = slot
	}
	return out
}

// SameSlots reports whether two versions of a group with the same instances have them in the same
// slots.
func SameSlots(a, b *api.NodeDeviceResource) bool {
	return TextOf(a, attr.Indexes) == TextOf(b, attr.Indexes) && maps.Equal(busIDs(a), busIDs(b))
}

func busIDs(d *api.NodeDeviceResource) map[string]string {
	out := make(map[string]string, len(d.Instances))
	for _, in := range d.Instances {
		out[in.ID] = busID(in)
	}
	return out
}

func busID(in *api.NodeDevice) string {
	if in.Locality == nil {
		return ""
	}
	return in.Locality.PciBusID
}

// eachGPU splits a group with the parts of shared GPUs into one group per GPU, ordered by GPU id.
// eachGPU does not split other groups.
func eachGPU(d *api.NodeDeviceResource) (groups []*api.NodeDeviceResource) {
	if d.Type != attr.SharedType {
		return []*api.NodeDeviceResource{d}
	}
	parts := map[string][]*api.NodeDevice{}
	for _, in := range d.Instances {
		gpu := attr.GPUOf(in.ID)
		parts[gpu] = append(parts[gpu], in)
	}
	for _, gpu := range slices.Sorted(maps.Keys(parts)) {
		g := *d
		g.Instances = parts[gpu]
		groups = append(groups, &g)
	}
	return groups
}
