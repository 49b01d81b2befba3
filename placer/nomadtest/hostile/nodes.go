// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package hostile

import (
	"fmt"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// Node is a malformed or absurd node. Name says what is wrong with the node.
type Node struct {
	Name string
	Node *api.Node
}

// PlainNode returns a ready node with these GPUs, in the form that Nomad stores. All GPUs have the
// same model. index is the node's CreateIndex and ModifyIndex.
func PlainNode(id, model string, index uint64, gpus ...string) *api.Node {
	d := &api.NodeDeviceResource{Vendor: attr.Vendor, Type: attr.Type, Name: model, Attributes: map[string]*api.Attribute{}}
	for _, g := range gpus {
		d.Instances = append(d.Instances, &api.NodeDevice{ID: g, Healthy: true})
	}
	return &api.Node{
		ID: id, Name: id, Datacenter: "dc1", NodePool: "default", Status: api.NodeStatusReady, SchedulingEligibility: api.NodeSchedulingEligible,
		Attributes: map[string]string{"driver.raw_exec": "1"}, Drivers: map[string]*api.DriverInfo{"raw_exec": {Detected: true, Healthy: true}},
		NodeResources: &api.NodeResources{
			Cpu: api.NodeCpuResources{CpuShares: 100_000}, Memory: api.NodeMemoryResources{MemoryMB: 1_000_000},
			Disk: api.NodeDiskResources{DiskMB: 1_000_000}, Devices: []*api.NodeDeviceResource{d},
		},
		CreateIndex: index, ModifyIndex: index,
	}
}

// Nodes returns all hostile nodes. The nodes have consecutive indexes, beginning with first. others
// contains the GPUs of well-formed nodes.
func Nodes(first uint64, others ...string) []Node {
	var all []Node
	add := func(name string, change func(*api.Node)) {
		i := uint64(len(all))
		n := PlainNode(fmt.Sprintf("hostile-%d", i), "H200", first+i, fmt.Sprintf("own-%d-0", i), fmt.Sprintf("own-%d-1", i))
		change(n)
		all = append(all, Node{name, n})
	}
	name := func(n *api.Node, gpus ...string) {
		for _, g := range gpus {
			n.NodeResources.Devices[0].Instances = append(n.NodeResources.Devices[0].Instances, &api.NodeDevice{ID: g, Healthy: true})
		}
	}
	publish := func(n *api.Node, attribute, text string) {
		n.NodeResources.Devices[0].Attributes[attribute] = &api.Attribute{StringVal: &text}
	}
	add("others' GPUs", func(n *api.Node) { name(n, others...) })
	add("others' GPUs as another model", func(n *api.Node) { name(n, others...); n.NodeResources.Devices[0].Name = "T4" })
	add("others' GPUs, unhealthy", func(n *api.Node) {
		name(n, others...)
		for _, in := range n.NodeResources.Devices[0].Instances {
			in.Healthy = false
		}
	})
	add("others' GPUs, as an older node", func(n *api.Node) { name(n, others...); n.CreateIndex = 1 })
	add("its own GPUs twice", func(n *api.Node) { name(n, n.NodeResources.Devices[0].Instances[0].ID) })
	add("thousands of GPUs", func(n *api.Node) {
		for i := range 5000 {
			name(n, fmt.Sprintf("%s-many-%d", n.ID, i))
		}
	})
	add("ids that are none", func(n *api.Node) {
		name(n, "", "a,b", "a;b", "nomad-pal", "nomad-pal/class", "${meta.x}", "\x1b[2J", "\u202e", "\xff", strings.Repeat("x", 1<<16))
	})
	add("null entries", func(n *api.Node) {
		d := n.NodeResources.Devices[0]
		d.Instances, d.Attributes["unique.numa_0"] = append(d.Instances, nil), nil
		n.NodeResources.Devices, n.Drivers["docker"] = append(n.NodeResources.Devices, nil), nil
	})
	add("no resources", func(n *api.Node) { n.NodeResources = nil })
	add("no model", func(n *api.Node) { n.NodeResources.Devices[0].Name = "" })
	add("negative amounts", func(n *api.Node) {
		n.NodeResources.Cpu.CpuShares, n.NodeResources.Memory.MemoryMB, n.NodeResources.Disk.DiskMB = -1, -1<<63, -5
	})
	add("absurd amounts", func(n *api.Node) {
		n.NodeResources.Cpu.CpuShares, n.NodeResources.Memory.MemoryMB = 1<<63-1, 1<<63-1
		n.ReservedResources = &api.NodeReservedResources{Memory: api.NodeReservedMemoryResources{MemoryMB: 1<<64 - 1}}
	})
	add("times of others' GPUs", func(n *api.Node) { publish(n, attr.Raw, strings.Join(others, " A=900;")+" A=900") })
	add("times that overflow", func(n *api.Node) {
		own := n.NodeResources.Devices[0].Instances
		publish(n, attr.Raw, own[0].ID+" A=1e308;"+own[1].ID+" A=1e308")
	})
	add("a million times", func(n *api.Node) { publish(n, attr.Raw, strings.Repeat("x A=1;", 1_000_000)+"x A=1") })
	add("islands beyond number", func(n *api.Node) {
		publish(n, "unique.nvlink_island_99999999999999999999", "own-0")
		publish(n, "unique.numa_-1", "own-0")
	})
	return all
}
