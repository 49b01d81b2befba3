// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package constraint

import (
	"testing"

	"github.com/hashicorp/nomad/api"
)

func text(s string) *api.Attribute            { return &api.Attribute{StringVal: &s} }
func number(n int64, u string) *api.Attribute { return &api.Attribute{IntVal: &n, Unit: u} }

// TestNodeMeets compares every operator with Nomad's documentation.
func TestNodeMeets(t *testing.T) {
	n := &api.Node{
		ID: "n1", Name: "node-1", Datacenter: "dc1", NodeClass: "big", NodePool: "gpu",
		Attributes: map[string]string{
			"kernel.name": "linux", "nomad.version": "1.11.3", "beta.version": "1.2.0-beta1",
			"cpu.numcores": "16", "load": "0.5", "driver.list": "docker, exec,raw_exec",
		},
		Meta: map[string]string{"rack": "r2"},
	}
	for _, c := range []struct {
		l, operand, r string
		want          bool
	}{
		{"${attr.kernel.name}", "=", "linux", true},
		{"${attr.kernel.name}", "", "linux", true},
		{"${attr.kernel.name}", "==", "windows", false},
		{"${attr.absent}", "=", "linux", false},
		{"${attr.absent}", "!=", "linux", true},
		{"${attr.kernel.name}", "!=", "linux", false},
		{"${node.unique.id}", "is", "n1", true},
		{"${node.unique.name}", "not", "node-2", true},
		{"${node.datacenter}", "=", "dc1", true},
		{"${node.class}", "=", "big", true},
		{"${node.pool}", "=", "gpu", true},
		{"${meta.rack}", "=", "r2", true},
		{"${meta.pal_gate}", "=", "open", false},
		{"${node.region}", "=", "global", false}, // the scheduler does not know it either
		{"${attr.cpu.numcores}", ">", "9", true}, // as numbers, not as text
		{"${attr.cpu.numcores}", "<=", "15.5", false},
		{"${attr.load}", "<", "1", true},
		{"${attr.kernel.name}", ">=", "a", true},
		{"${attr.absent}", "<", "1", false},
		{"${attr.nomad.version}", "version", ">= 1.8, < 2", true},
		{"${attr.nomad.version}", "version", "~> 1.10.0", false},
		{"${attr.beta.version}", "version", ">= 1.1.0", false}, // a prerelease must be named
		{"${attr.beta.version}", "semver", ">= 1.1.0", true},
		{"${attr.beta.version}", "semver", ">= 1.2.0", false},
		{"${attr.beta.version}", "semver", "!= 1.2.0, < 1.2.0", true},
		{"${attr.kernel.name}", "version", ">= 1", false},
		{"${attr.kernel.name}", "regexp", "^lin", true},
		{"${attr.kernel.name}", "regexp", "(", false},
		{"${attr.driver.list}", "set_contains", "exec,docker", true},
		{"${attr.driver.list}", "set_contains_all", "exec,java", false},
		{"${attr.driver.list}", "set_contains_any", "java, exec", true},
		{"${attr.driver.list}", "set_contains_any", "java", false},
		{"${attr.kernel.name}", "is_set", "", true},
		{"${attr.absent}", "is_set", "", false},
		{"${attr.absent}", "is_not_set", "", true},
		{"", "distinct_hosts", "true", true},
		{"${attr.kernel.name}", "unheard_of", "linux", false},
	} {
		got := NodeMeets(&api.Constraint{LTarget: c.l, Operand: c.operand, RTarget: c.r}, n)
		if got != c.want {
			t.Errorf("%s %s %q: %v", c.l, c.operand, c.r, got)
		}
	}
}

func TestDeviceMeets(t *testing.T) {
	d := &api.NodeDeviceResource{
		Vendor: "nvidia", Type: "gpu", Name: "NVIDIA H200",
		Instances: []*api.NodeDevice{{ID: "g1"}, {ID: "g2"}},
		Attributes: map[string]*api.Attribute{
			"memory": number(143771, "MiB"), "driver_version": text("580.159.04"), "count": number(2, ""),
		},
	}
	for _, c := range []struct {
		l, operand, r string
		want          bool
	}{
		{"${device.model}", "=", "NVIDIA H200", true},
		{"${device.vendor}", "!=", "amd", true},
		{"${device.type}", "is", "gpu", true},
		{"${device.attr.memory}", ">=", "80 GiB", true},
		{"${device.attr.memory}", ">", "141 GiB", false},
		{"${device.attr.memory}", ">", "10 W", false}, // not comparable
		{"${device.attr.absent}", "!=", "1", true},
		{"${device.attr.absent}", "!=", "${device.attr.none}", false},
		{"${device.attr.absent}", ">", "1", false},
		{"${device.attr.count}", ">=", "2", true},
		{"${device.attr.driver_version}", "version", ">= 570", true},
		{"${device.ids}", "set_contains_any", "g2,g9", true},
		{"${device.ids}", "set_contains", "g1,g2", true},
		{"${device.ids}", "set_contains_any", "g9", false},
		{"${device.attr.driver_version}", "is_set", "", true},
	} {
		got := DeviceMeets(&api.Constraint{LTarget: c.l, Operand: c.operand, RTarget: c.r}, d)
		if got != c.want {
			t.Errorf("%s %s %q: %v", c.l, c.operand, c.r, got)
		}
	}
}
