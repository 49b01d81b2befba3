// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package constraint

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hashicorp/nomad/api"
)

// faultyDevices are two groups of GPUs that differ in model, memory and attributes.
func faultyDevices() []*api.NodeDeviceResource {
	of := func(name string, memory int64) *api.NodeDeviceResource {
		return &api.NodeDeviceResource{Vendor: "nvidia", Type: "gpu", Name: name, Instances: []*api.NodeDevice{{ID: "GPU-1", Healthy: true}}, Attributes: map[string]*api.Attribute{
			"memory": {IntVal: &memory, Unit: "MiB"}, "power": {IntVal: new(int64(400)), Unit: "W"}, "compute_major": {IntVal: new(int64(8))},
			"driver_version": {StringVal: new("550.54.15")}, "ecc": {BoolVal: new(true)}, "architecture": {StringVal: new("ampere")},
			"unique.variability_raw": {StringVal: new("…")},
		}}
	}
	mig := of("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 40960)
	mig.Attributes["mig_profile"] = &api.Attribute{StringVal: new("3g.40gb")}
	return []*api.NodeDeviceResource{of("NVIDIA A100-SXM4-80GB", 81920), mig}
}

// A constraint that no GPU meets is explained by the name that is missing, or by the GPUs' values.
func TestDeviceFaults(t *testing.T) {
	const models = "GPUs have NVIDIA A100-SXM4-80GB, NVIDIA A100-SXM4-80GB MIG 3g.40gb"
	for _, c := range []struct{ left, op, right, want string }{
		{"Vendor", "=", "nvidia", `no GPU has Vendor (did you mean "${device.vendor}"?)`},
		{"device.attr.memory", ">=", "40 GiB", `no GPU has device.attr.memory (did you mean "${device.attr.memory}"?)`},
		{"colour", "=", "red", `no GPU has colour`},
		{"${meta.rack}", "=", "r1", `no GPU has ${meta.rack}`},
		{"${device.attr.compute_capability}", ">=", "8.0", `no GPU has ${device.attr.compute_capability}`},
		{"${device.attr.memroy}", ">=", "40 GiB", `no GPU has ${device.attr.memroy} (did you mean "${device.attr.memory}"?)`},
		{"${device.memory}", ">=", "40 GiB", `no GPU has ${device.memory} (did you mean "${device.attr.memory}"?)`},
		{"8", "=", "${device.attr.compute_majr}", `no GPU has ${device.attr.compute_majr} (did you mean "${device.attr.compute_major}"?)`},
		{"${device.model}", "=", "${device.attr.modle}", `no GPU has ${device.attr.modle} (did you mean "${device.model}"?)`},
		{"${device.model}", "version", ">= 1", models},
		{"${device.model}", "=", "a100", models + ` (did you mean "NVIDIA A100-SXM4-80GB"?)`},
		{"${device.attr.memory}", ">=", "40960", `GPUs have 40960MiB, 81920MiB (did you mean "40960MiB"?)`},
		{"${device.attr.memory}", ">=", "1 TiB", `GPUs have 40960MiB, 81920MiB`},
		{"7", "=", "${device.attr.compute_major}", `GPUs have 8`},
		{"${device.attr.architecture}", "=", "amper", `GPUs have ampere (did you mean "ampere"?)`},
		{"${device.attr.mig_profile}", "is_not_set", "", ""},
		{"${device.attr.memory}", ">", "2GB", ""},
		{"${device.attr.colour}", "!=", "red", ""},
	} {
		if got := DeviceFault(&api.Constraint{LTarget: c.left, Operand: c.op, RTarget: c.right}, faultyDevices()); got != c.want {
			t.Errorf("%s %s %s: %s, want %s", c.left, c.op, c.right, got, c.want)
		}
	}
	if got := DeviceFault(&api.Constraint{LTarget: "colour", Operand: "=", RTarget: "red"}, nil); got != "" {
		t.Errorf("without GPUs: %s", got)
	}
}

// The same for nodes.
func TestNodeFaults(t *testing.T) {
	nodes := []*api.Node{{ID: "1", Attributes: map[string]string{"kernel.name": "linux", "nomad.version": "1.11.3"}, Meta: map[string]string{"rack": "row-7"}}}
	for i := range 5 {
		nodes = append(nodes, &api.Node{Meta: map[string]string{"room": fmt.Sprint("cellar", i, strings.Repeat("é", 100))}})
	}
	for _, c := range []struct{ left, op, right, want string }{
		{"kernel.name", "=", "linux", `no node has kernel.name (did you mean "${attr.kernel.name}"?)`},
		{"rack", "=", "row-7", `no node has rack (did you mean "${meta.rack}"?)`},
		{"${device.model}", "=", "NVIDIA H200", `no node has ${device.model}`},
		{"${attr.kernal.name}", "=", "x", `no node has ${attr.kernal.name} (did you mean "${attr.kernel.name}"?)`},
		{"${attr.rack}", "=", "row-7", `no node has ${attr.rack} (did you mean "${meta.rack}"?)`},
		{"${attr.kernel.name}", "version", ">= 1", `nodes have linux`},
		{"${meta.rack}", "=", "row-8", `nodes have row-7 (did you mean "row-7"?)`},
		{"${attr.nomad.version}", "version", ">= 2", `nodes have 1.11.3`},
		{"${attr.nomad.version}", "version", ">= 1", ""},
	} {
		if got := NodeFault(&api.Constraint{LTarget: c.left, Operand: c.op, RTarget: c.right}, nodes); got != c.want {
			t.Errorf("%s %s %s: %s, want %s", c.left, c.op, c.right, got, c.want)
		}
	}
	got := NodeFault(&api.Constraint{LTarget: "${meta.room}", Operand: "=", RTarget: "attic"}, nodes)
	if !strings.HasSuffix(got, "é, 1 more") || utf8.RuneCountInString(got) > 5*mostLetters || !utf8.ValidString(got) {
		t.Errorf("many long values: %s", got)
	}
}
