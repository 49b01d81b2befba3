// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/nomad/structs"
	psstructs "github.com/hashicorp/nomad/plugins/shared/structs"
)

// generate has the parameters of generated nodes. Equal parameters give equal nodes, byte for byte.
type generate struct {
	nodes, gpus int
	rack        int // nodes per rack; 0: no racks
	seed        int64
}

// edges are the upper limits of the PM scores in variability classes 1 to 4, as by default in
// nomad-device-pal. Class 5 has no limit.
var edges = [...]float64{0.99, 1.01, 1.03, 1.06}

// appClasses are the application classes that nodes publish. share is the part of a GPU's deviation
// from the median that affects a class: all for compute-bound work, little for memory-bound work.
var appClasses = [...]struct {
	name  string
	share float64
}{{"A", 1}, {"B", 0.4}, {"C", 0.1}}

// all returns the nodes, in order.
func (g generate) all() []*structs.Node {
	r := rand.New(rand.NewPCG(uint64(g.seed), 0))
	nodes := make([]*structs.Node, g.nodes)
	for i := range nodes {
		nodes[i] = g.node(i, r)
	}
	return nodes
}

func (g generate) node(i int, r *rand.Rand) *structs.Node {
	name := fmt.Sprintf("sim-%05d", i)
	n := &structs.Node{
		ID: g.uuid("node", i), SecretID: g.uuid("secret", i), Name: name, Datacenter: "dc1", NodePool: structs.NodePoolDefault,
		Attributes: map[string]string{
			"kernel.name": "linux", "cpu.arch": "amd64", "nomad.version": "1.11.3", "driver.raw_exec": "1", "unique.hostname": name,
		},
		Drivers: map[string]*structs.DriverInfo{
			"raw_exec": {Detected: true, Healthy: true, Attributes: map[string]string{"driver.raw_exec": "1"}},
		},
		NodeResources:         resources(),
		ReservedResources:     &structs.NodeReservedResources{},
		Status:                structs.NodeStatusReady,
		SchedulingEligibility: structs.NodeSchedulingEligible,
	}
	if g.rack > 0 {
		n.Meta = map[string]string{"rack": fmt.Sprintf("r%04d", i/g.rack)}
	}
	if g.gpus > 0 {
		n.NodeResources.Devices = []*structs.NodeDeviceResource{g.group(i, r)}
	}
	return n
}

func resources() *structs.NodeResources {
	r := &structs.NodeResources{
		// A node has few cores, because Nomad keeps an entry for each core. Only the total matters.
		Cpu:    structs.LegacyNodeCpuResources{CpuShares: 256_000, TotalCpuCores: 4, ReservableCpuCores: []uint16{0, 1, 2, 3}},
		Memory: structs.NodeMemoryResources{MemoryMB: 2_000_000},
		Disk:   structs.NodeDiskResources{DiskMB: 1_000_000},
		// Without networks, groups fail with "missing network".
		Networks: structs.Networks{{Mode: "host", Device: "eth0", CIDR: "127.0.0.1/32", IP: "127.0.0.1", MBits: 1000}},
		NodeNetworks: []*structs.NodeNetworkResource{{
			Mode: "host", Device: "eth0", Speed: 1000,
			Addresses: []structs.NodeNetworkAddress{{Alias: "default", Address: "127.0.0.1", Family: structs.NodeNetworkAF_IPv4}},
		}},
		MinDynamicPort: 20_000, MaxDynamicPort: 32_000,
	}
	r.Compatibility()
	return r
}

// group returns a node's GPUs with the attributes that nomad-device-pal publishes: lists of classes
// (names that begin with "unique."), counts of these lists, and scores.
func (g generate) group(node int, r *rand.Rand) *structs.NodeDeviceResource {
	group := &structs.NodeDeviceResource{Vendor: "nvidia", Type: "gpu", Name: "NVIDIA H200", Attributes: map[string]*psstructs.Attribute{
		"memory": psstructs.NewIntAttribute(141, "GiB"), "count": number(g.gpus), "healthy_count": number(g.gpus),
		"variability_reference": psstructs.NewStringAttribute("profile"),
	}}
	scores := make([]float64, g.gpus)
	var raw []string
	for k := range scores {
		scores[k] = score(r)
		entry := "GPU-" + g.uuid("gpu", node*g.gpus+k)
		group.Instances = append(group.Instances, &structs.NodeDevice{
			ID: entry, Healthy: true, Locality: &structs.NodeDeviceLocality{PciBusID: fmt.Sprintf("0000:%02x:00.0", 16+k)},
		})
		for _, c := range appClasses {
			entry += " " + c.name + "=" + strconv.FormatFloat(1+(scores[k]-1)*c.share, 'g', 6, 64)
		}
		raw = append(raw, entry)
	}
	group.Attributes["unique.variability_scores"] = psstructs.NewStringAttribute(strings.Join(raw, ";"))
	for _, c := range appClasses {
		classLists(group, strings.ToLower(c.name), scores, c.share)
	}
	return group
}

func number(n int) *psstructs.Attribute { return psstructs.NewIntAttribute(int64(n), "") }

// classLists adds, for each k, the list of instances of class k or better, and the list's count.
func classLists(group *structs.NodeDeviceResource, app string, scores []float64, share float64) {
	for k := 1; k <= len(edges)+1; k++ {
		var ids []string
		for i, inst := range group.Instances {
			if k > len(edges) || 1+(scores[i]-1)*share < edges[k-1] {
				ids = append(ids, inst.ID)
			}
		}
		group.Attributes[fmt.Sprintf("unique.variability_%s_le_%d", app, k)] = psstructs.NewStringAttribute(strings.Join(ids, ","))
		group.Attributes[fmt.Sprintf("variability_%s_le_%d_count", app, k)] = number(len(ids))
	}
}

// score draws a PM score. Most scores are near the median; one GPU in 64 is far above it, as in the
// clusters of the PAL paper.
func score(r *rand.Rand) float64 {
	if r.IntN(64) == 0 {
		return 1.2 + 1.3*r.Float64()
	}
	return 1 + 0.02*r.NormFloat64()
}

// uuid returns an id that depends only on the seed, the kind and the number.
func (g generate) uuid(kind string, i int) string {
	h := sha256.Sum256(fmt.Appendf(nil, "%d %s %d", g.seed, kind, i))
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}
