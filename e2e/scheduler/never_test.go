// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package scheduler

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/command/agent"
	"github.com/hashicorp/nomad/jobspec2"
	psstructs "github.com/hashicorp/nomad/plugins/shared/structs"
)

// TestNever gives Nomad's scheduler the conditions that no GPU can meet according to the placer,
// and those that the placer tells authors to write instead (the same as in TestDeviceFaults in
// placer/nomad).
func TestNever(t *testing.T) {
	t.Setenv("NOMAD_TEST_LOG_LEVEL", "off")
	n := gpuNode(t, "n1", "", []string{"a1"}, false)
	d := n.NodeResources.Devices[0]
	d.Name = "NVIDIA A100-SXM4-80GB"
	for name, a := range map[string]*psstructs.Attribute{
		"memory": psstructs.NewIntAttribute(81920, "MiB"), "compute_major": psstructs.NewIntAttribute(8, ""),
		"driver_version": psstructs.NewStringAttribute("550.54.15"), "ecc": psstructs.NewBoolAttribute(true),
	} {
		d.Attributes[name] = a
	}
	if err := n.ComputeClass(); err != nil {
		t.Fatal(err)
	}
	w := world{}
	w.nodes = append(w.nodes, n)
	for _, c := range []struct {
		left, op, right string
		met             bool
	}{
		{"${device.model}", "contains", "A100", false}, {"${device.model}", "regexp", "A100", true},
		{"Vendor", "=", "nvidia", false}, {"${device.vendor}", "=", "nvidia", true},
		{"${meta.rack}", "=", "r1", false},
		{"${device.attr.uuid}", "=", "a1", false},
		{"${device.attr.compute_capability}", ">=", "8.0", false}, {"${device.attr.compute_major}", ">=", "8", true},
		{"${device.attr.compute_major}", "=", "8 MiB", false}, {"${device.attr.compute_major}", "regexp", "8", false},
		{"${device.attr.memory}", ">=", "20480", false}, {"${device.attr.memory}", ">=", "20480 MiB", true},
		{"${device.attr.memory}", ">=", "40 gb", false}, {"${device.attr.memory}", ">=", "40 GB", true},
		{"${device.attr.ecc}", "=", "enabled", false}, {"${device.attr.ecc}", "=", "1", false}, {"${device.attr.ecc}", "=", "true", true},
		{"${device.attr.driver_version}", ">=", "550", false}, {"${device.attr.driver_version}", "version", "550", false},
		{"${device.attr.driver_version}", "version", ">= 550", true},
		{"${device.model}", "regexp", "100", false}, {"${device.model}", "regexp", "80GB", false}, {"${device.model}", "regexp", ".*80GB.*", true},
		{"${device.model}", "version", ">= 1", false}, {"${device.model}", "=", "a100", false},
	} {
		job, err := jobspec2.Parse("never.hcl", strings.NewReader(`job "j" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      resources {
        device "nvidia/gpu" {}
      }
    }
  }
}`))
		if err != nil {
			t.Fatal(err)
		}
		job.Canonicalize()
		job.TaskGroups[0].Tasks[0].Resources.Devices[0].Constraints = []*api.Constraint{{LTarget: c.left, Operand: c.op, RTarget: c.right}}
		asks := agent.ApiJobToStructJob(job)
		asks.Canonicalize()
		if got := w.evaluate(t, asks, 0); strings.Contains(got, "g on n1 a1") != c.met {
			t.Errorf("%s: for us, met is %v; Nomad says\n%s", fmt.Sprint(c.left, " ", c.op, " ", c.right), c.met, got)
		}
	}
}
