// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package constraint

import (
	"slices"
	"testing"

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

// The fault names why no GPU can meet a constraint, and some GPU meets the constraint that it
// suggests.
func TestDeviceFaults(t *testing.T) {
	devices, tried := faultyDevices(), map[FaultKind]bool{}
	for _, c := range []struct {
		left, op, right string
		kind            FaultKind
		write           Condition // zero: no advice
	}{
		{"${device.model}", "contains", "A100", FaultOperator, Condition{"${device.model}", "regexp", "A100"}},
		{"${device.attr.memory}", "gte", "40 GiB", FaultOperator, Condition{}},
		{"${device.attr.architecture}", "in", "ampere,hopper", FaultOperator, Condition{"${device.attr.architecture}", "set_contains_any", "ampere,hopper"}},
		{"${device.model}", "setcontains", "NVIDIA A100-SXM4-80GB", FaultOperator, Condition{"${device.model}", "set_contains", "NVIDIA A100-SXM4-80GB"}},
		{"Vendor", "=", "nvidia", FaultWord, Condition{"${device.vendor}", "=", "nvidia"}},
		{"device.attr.memory", ">=", "40 GiB", FaultWord, Condition{"${device.attr.memory}", ">=", "40 GiB"}},
		{"compute_capability", ">=", "8", FaultWord, Condition{"${device.attr.compute_major}", ">=", "8"}},
		{"colour", "=", "red", FaultWord, Condition{}},
		{"${meta.rack}", "=", "r1", FaultPlace, Condition{"${meta.rack}", "=", "r1"}},
		{"${device.attr.uuid}", "=", "GPU-1", FaultInstance, Condition{"${device.ids}", "set_contains", "GPU-1"}},
		{"${device.attr.compute_capability}", ">=", "8.0", FaultAttribute, Condition{"${device.attr.compute_major}", ">=", "8"}},
		{"${device.attr.memroy}", ">=", "40 GiB", FaultAttribute, Condition{"${device.attr.memory}", ">=", "40 GiB"}},
		{"${device.memory}", ">=", "40 GiB", FaultAttribute, Condition{"${device.attr.memory}", ">=", "40 GiB"}},
		{"${device.name}", "=", "NVIDIA A100-SXM4-80GB", FaultAttribute, Condition{"${device.model}", "=", "NVIDIA A100-SXM4-80GB"}},
		{"${device.attr.colour}", "is_set", "", FaultAttribute, Condition{}},
		{"${device.model}", "regexp", "*A100*", FaultPattern, Condition{"${device.model}", "regexp", "A100"}},
		{"${device.model}", "version", ">= 1", FaultPattern, Condition{}},
		{"${device.attr.driver_version}", "version", "new", FaultPattern, Condition{}},
		{"${device.attr.memory}", ">=", "20480", FaultType, Condition{"${device.attr.memory}", ">=", "20480 MiB"}},
		{"${device.attr.memory}", ">=", "20480.5", FaultType, Condition{"${device.attr.memory}", ">=", "20480.5 MiB"}},
		{"${device.attr.memory}", ">=", "40 gb", FaultType, Condition{"${device.attr.memory}", ">=", "40 GB"}},
		{"${device.attr.memory}", ">=", "40Gi", FaultType, Condition{"${device.attr.memory}", ">=", "40 GiB"}},
		{"${device.attr.memory}", ">=", "999999", FaultType, Condition{}},
		{"${device.attr.compute_capability}", ">=", "9.0", FaultAttribute, Condition{}},
		{"${device.attr.memory}", ">=", "300 W", FaultType, Condition{}},
		{"${device.attr.compute_major}", "=", "8 MiB", FaultType, Condition{}},
		{"${device.attr.memory}", ">=", "large", FaultType, Condition{}},
		{"${device.attr.ecc}", "=", "enabled", FaultType, Condition{}},
		{"${device.attr.driver_version}", ">=", "550", FaultType, Condition{"${device.attr.driver_version}", "version", ">= 550"}},
		{"${device.attr.driver_version}", "version", "550", FaultType, Condition{"${device.attr.driver_version}", "version", ">= 550"}},
		{"${device.model}", "regexp", "100", FaultType, Condition{"${device.model}", "regexp", ".*100.*"}},
		{"${device.model}", "regexp", "80GB", FaultType, Condition{"${device.model}", "regexp", ".*80GB.*"}},
		{"${device.model}", "=", "100", FaultType, Condition{"${device.model}", "regexp", ".*100.*"}},
		{"${device.attr.compute_major}", "regexp", "8", FaultType, Condition{}},
		{"${device.model}", "=", "a100", FaultValue, Condition{"${device.model}", "=", "NVIDIA A100-SXM4-80GB"}},
		{"${device.attr.architecture}", "=", "amper", FaultValue, Condition{"${device.attr.architecture}", "=", "ampere"}},
		{"${device.attr.memory}", ">=", "1 TiB", FaultValue, Condition{}},
		{"${device.attr.mig_profile}", "=", "7g", FaultValue, Condition{}},
		{"${device.attr.mig_profile}", "is_not_set", "", "", Condition{}},
		{"${device.attr.memory}", ">", "2GB", "", Condition{}},
		{"${device.attr.colour}", "!=", "red", "", Condition{}},
	} {
		f := DeviceFault(&api.Constraint{LTarget: c.left, Operand: c.op, RTarget: c.right}, devices)
		if f == nil || c.kind == "" {
			if f != nil || c.kind != "" {
				t.Errorf("%s %s %s: %+v, want %s", c.left, c.op, c.right, f, c.kind)
			}
			continue
		}
		tried[f.Kind] = true
		got := Condition{}
		if f.Write != nil {
			got = *f.Write
		}
		if f.Kind != c.kind || got != c.write {
			t.Errorf("%s %s %s: %s (%s), write %+v; want %s, %+v", c.left, c.op, c.right, f.Kind, f, f.Write, c.kind, c.write)
		}
		if (f.Advice() == "") != (f.Write == nil) {
			t.Errorf("%s %s %s: %+v, advice %q", c.left, c.op, c.right, f, f.Advice())
		}
		if w := f.Write; w != nil && f.In == "" {
			again := &api.Constraint{LTarget: w.Attribute, Operand: w.Operator, RTarget: w.Value}
			if !slices.ContainsFunc(devices, func(d *api.NodeDeviceResource) bool { return DeviceMeets(again, d) }) {
				t.Errorf("%s %s %s: no GPU meets the suggested constraint: %v", c.left, c.op, c.right, w)
			}
		}
	}
	for _, kind := range FaultKinds {
		if !tried[kind] {
			t.Errorf("no case has the fault %q", kind)
		}
	}
}

// The same for nodes.
func TestNodeFaults(t *testing.T) {
	nodes := []*api.Node{{ID: "1", Attributes: map[string]string{"kernel.name": "linux", "nomad.version": "1.11.3"}, Meta: map[string]string{"rack": "row-7"}}}
	for _, c := range []struct {
		left, op, right string
		kind            FaultKind
		write           Condition
	}{
		{"${attr.kernel.name}", "contains", "linux", FaultOperator, Condition{"${attr.kernel.name}", "regexp", "linux"}},
		{"kernel.name", "=", "linux", FaultWord, Condition{"${attr.kernel.name}", "=", "linux"}},
		{"rack", "=", "row-7", FaultWord, Condition{"${meta.rack}", "=", "row-7"}},
		{"${device.model}", "=", "NVIDIA H200", FaultPlace, Condition{"${device.model}", "=", "NVIDIA H200"}},
		{"${attr.kernal.name}", "=", "x", FaultAttribute, Condition{}},
		{"${attr.kernal.name}", "=", "linux", FaultAttribute, Condition{"${attr.kernel.name}", "=", "linux"}},
		{"${attr.rack}", "=", "row-7", FaultAttribute, Condition{"${meta.rack}", "=", "row-7"}},
		{"${attr.kernel.name}", "version", ">= 1", FaultPattern, Condition{}},
		{"${attr.kernel.name}", "regexp", "*nux", FaultPattern, Condition{"${attr.kernel.name}", "regexp", "nux"}},
		{"${meta.rack}", "=", "row-8", FaultValue, Condition{"${meta.rack}", "=", "row-7"}},
		{"${attr.nomad.version}", "version", ">= 2", FaultValue, Condition{}},
		{"${attr.nomad.version}", "version", ">= 1", "", Condition{}},
	} {
		f := NodeFault(&api.Constraint{LTarget: c.left, Operand: c.op, RTarget: c.right}, nodes)
		switch {
		case f == nil || c.kind == "":
			if f != nil || c.kind != "" {
				t.Errorf("%s %s %s: %+v, want %s", c.left, c.op, c.right, f, c.kind)
			}
		case f.Kind != c.kind || f.Write == nil && c.write != Condition{} || f.Write != nil && *f.Write != c.write:
			t.Errorf("%s %s %s: %s (%s), write %+v; want %s, %+v", c.left, c.op, c.right, f.Kind, f, f.Write, c.kind, c.write)
		case f.Write != nil && f.In == "" && !NodeMeets(&api.Constraint{LTarget: f.Write.Attribute, Operand: f.Write.Operator, RTarget: f.Write.Value}, nodes[0]):
			t.Errorf("%s %s %s: no node meets the suggested constraint: %v", c.left, c.op, c.right, f.Write)
		}
	}
}
