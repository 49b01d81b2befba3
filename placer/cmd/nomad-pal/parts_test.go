// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// Parts of a GPU are shown as parts, can be named by a prefix of the GPU's id and their number, and
// are put in quarantine together.
func TestPartsOfGPU(t *testing.T) {
	c := newCluster(t)
	node := nomadtest.GPUNode(2, 1)
	d := node.NodeResources.Devices[0]
	d.Type, d.Name = attr.SharedType, d.Name+attr.SharedSuffix
	d.Instances = []*api.NodeDevice{{ID: "GPU-2-0::0", Healthy: true}, {ID: "GPU-2-0::1", Healthy: true}}
	c.nomad.AddNode(node)
	c.nomad.SetUse("GPU-2-0::0", 63) // the first part has the GPU's statistics
	c.agent("", "http {\n  bind_port = 0\n}\n")
	says := func(want string, args ...string) {
		t.Helper()
		c.says(0, want, args...)
	}
	says("10: 0 allocated, 10 free; 2 of these are parts of 1 GPU\n", "status")
	says("has 2 GPUs: 0 allocated, 2 free; 2 of these are parts of 1 GPU.", "explain", "node-2")
	says("GPU-2-0::1, nvidia/gpu.shared/NVIDIA H200-SHARED of node node-2, is free.", "explain", "GPU-2::1")
	if _, out, said := c.does("gpus", "-live", "-node", "node-2"); strings.Count(out, " 63%") != 2 {
		t.Errorf("current use of its parts:\n%s%s", out, said)
	}
	for _, name := range []string{"GPU-2-0", "GPU-2", "GPU-2-0::1"} {
		says("In quarantine: GPU-2-0\n", "quarantine", "-reason", "fan is replaced", name)
		for _, part := range []string{"GPU-2-0::0", "GPU-2-0::1"} {
			says("nomad-pal quarantine -lift GPU-2-0\n", "explain", part)
		}
		says("Lifted the quarantine of GPU-2-0\n", "quarantine", "-lift", name)
	}
}
