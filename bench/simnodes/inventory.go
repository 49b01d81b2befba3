// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/hashicorp/nomad/nomad/structs"
	psstructs "github.com/hashicorp/nomad/plugins/shared/structs"
)

// inventory is the file format: what nodes there are and what their device plugin would say.
type inventory struct {
	Nodes []nodeSpec `json:"nodes"`
}

type nodeSpec struct {
	ID         string            `json:"id"`
	SecretID   string            `json:"secret_id"`
	Name       string            `json:"name"`
	Datacenter string            `json:"datacenter,omitempty"` // dc1 when empty
	NodePool   string            `json:"node_pool,omitempty"`
	NodeClass  string            `json:"node_class,omitempty"`
	Meta       map[string]string `json:"meta,omitempty"`
	CPUMHz     int64             `json:"cpu_mhz,omitempty"`   // 256,000 when 0
	MemoryMB   int64             `json:"memory_mb,omitempty"` // 2,000,000 when 0
	Groups     []groupSpec       `json:"groups,omitempty"`
}

// groupSpec is one device group, vendor nvidia and type gpu.
type groupSpec struct {
	Name string `json:"name"` // the GPU model
	// Attributes are whole numbers (Int), fractions (Float), strings, booleans or {"value": 141, "unit": "GiB"}.
	Attributes map[string]any `json:"attributes,omitempty"`
	Instances  []instanceSpec `json:"instances"`
}

type instanceSpec struct {
	ID        string `json:"id"`
	Unhealthy string `json:"unhealthy,omitempty"` // why; empty for a healthy GPU
	BusID     string `json:"bus_id,omitempty"`
}

func readInventory(r io.Reader, name string) (*inventory, error) {
	var inv inventory
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(&inv); err != nil {
		return nil, fmt.Errorf("reading inventory %q: %w", name, err)
	}
	if len(inv.Nodes) == 0 {
		return nil, fmt.Errorf("reading inventory %q: no nodes", name)
	}
	return &inv, nil
}

// build turns the inventory into Nomad nodes, in order.
func (inv *inventory) build() ([]*structs.Node, error) {
	nodes := make([]*structs.Node, len(inv.Nodes))
	seen := make(map[string]int, len(nodes))
	for i, spec := range inv.Nodes {
		n, err := spec.node()
		if err != nil {
			return nil, fmt.Errorf("node %d (%q): %w", i, spec.Name, err)
		}
		if before, ok := seen[n.ID]; ok {
			return nil, fmt.Errorf("node %d (%q): id %q is that of node %d", i, spec.Name, n.ID, before)
		}
		seen[n.ID] = i
		nodes[i] = n
	}
	return nodes, nil
}

func (s nodeSpec) node() (*structs.Node, error) {
	if s.ID == "" || s.SecretID == "" || s.Name == "" {
		return nil, errors.New("id, secret_id and name are needed")
	}
	n := &structs.Node{
		ID: s.ID, SecretID: s.SecretID, Name: s.Name,
		Datacenter: orElse(s.Datacenter, "dc1"), NodePool: orElse(s.NodePool, structs.NodePoolDefault), NodeClass: s.NodeClass,
		Attributes: map[string]string{
			"kernel.name": "linux", "cpu.arch": "amd64", "nomad.version": "1.11.3", "driver.raw_exec": "1",
			"unique.hostname": s.Name,
		},
		Drivers: map[string]*structs.DriverInfo{
			"raw_exec": {Detected: true, Healthy: true, Attributes: map[string]string{"driver.raw_exec": "1"}},
		},
		Meta:                  s.Meta,
		NodeResources:         s.resources(),
		ReservedResources:     &structs.NodeReservedResources{},
		Status:                structs.NodeStatusReady,
		SchedulingEligibility: structs.NodeSchedulingEligible,
	}
	for _, g := range s.Groups {
		d, err := g.device()
		if err != nil {
			return nil, fmt.Errorf("device group %q: %w", g.Name, err)
		}
		n.NodeResources.Devices = append(n.NodeResources.Devices, d)
	}
	return n, nil
}

func (s nodeSpec) resources() *structs.NodeResources {
	r := &structs.NodeResources{
		// Few cores: Nomad keeps an entry for each, and only their total matters here.
		Cpu:    structs.LegacyNodeCpuResources{CpuShares: orElse(s.CPUMHz, 256_000), TotalCpuCores: 4, ReservableCpuCores: []uint16{0, 1, 2, 3}},
		Memory: structs.NodeMemoryResources{MemoryMB: orElse(s.MemoryMB, 2_000_000)},
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

func (g groupSpec) device() (*structs.NodeDeviceResource, error) {
	d := &structs.NodeDeviceResource{
		Vendor: "nvidia", Type: "gpu", Name: g.Name, Attributes: map[string]*psstructs.Attribute{},
	}
	if g.Name == "" || len(g.Instances) == 0 {
		return nil, errors.New("a name and at least one instance are needed")
	}
	for _, name := range slices.Sorted(maps.Keys(g.Attributes)) {
		a, err := attribute(g.Attributes[name])
		if err == nil {
			err = a.Validate()
		}
		if err != nil {
			return nil, fmt.Errorf("attribute %q: %w", name, err)
		}
		d.Attributes[name] = a
	}
	for _, i := range g.Instances {
		if i.ID == "" {
			return nil, errors.New("an instance without id")
		}
		d.Instances = append(d.Instances, &structs.NodeDevice{
			ID: i.ID, Healthy: i.Unhealthy == "", HealthDescription: i.Unhealthy,
			Locality: &structs.NodeDeviceLocality{PciBusID: i.BusID},
		})
	}
	return d, nil
}

// attribute converts a value as encoding/json gives it, or as the generator does.
func attribute(v any) (*psstructs.Attribute, error) {
	switch v := v.(type) {
	case string:
		return psstructs.NewStringAttribute(v), nil
	case bool:
		return psstructs.NewBoolAttribute(v), nil
	case int:
		return psstructs.NewIntAttribute(int64(v), ""), nil
	case float64:
		if v == math.Trunc(v) {
			return psstructs.NewIntAttribute(int64(v), ""), nil
		}
		return psstructs.NewFloatAttribute(v, ""), nil
	case map[string]any:
		unit, isText := v["unit"].(string)
		inner, err := attribute(v["value"])
		if err != nil || !isText || len(v) != 2 {
			return nil, fmt.Errorf("%v is not {value, unit}", v)
		}
		inner.Unit = unit
		return inner, nil
	}
	return nil, fmt.Errorf("a value of type %T", v)
}

func orElse[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
