// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// Parts of shared GPUs are no GPUs of the placer's: it neither counts them nor gives them to a
// job that asks for GPUs, by whatever name, and says so to one that is gated and asks for them.
func TestPartsOfGPUsAreLeftToNomad(t *testing.T) {
	s := world(1)
	for _, n := range s.Nodes {
		parts := &api.NodeDeviceResource{Vendor: "nvidia", Type: "gpu.shared", Name: "H200-SHARED"}
		for k := range 8 {
			parts.Instances = append(parts.Instances, &api.NodeDevice{ID: fmt.Sprintf("GPU-s::%d", k), Healthy: true})
		}
		n.NodeResources.Devices = append(n.NodeResources.Devices, parts)
		if got := cluster.GPUDevices(n); len(got) != 1 || got[0].Name != "H200" {
			t.Errorf("GPUs of the node: %+v", got)
		}
	}
	job := func(device string) *api.Job {
		return addJob(t, s, fmt.Sprintf(`job "j" {
  constraint {
    attribute = "${meta.pal_gate}"
    value     = "open"
  }
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "x" }
      resources {
        device %q {}
      }
    }
  }
}`, device), 1)
	}
	for _, device := range []string{"gpu.shared", "nvidia/gpu.shared", "nvidia/gpu.shared/H200-SHARED"} {
		const want = "(a part of a shared GPU: Nomad alone places those, so leave out the gate)"
		if got := NoGPUs(job(device)); !strings.Contains(got, want) || strings.Contains(got, "did you mean") {
			t.Errorf("%s: %s", device, got)
		}
		if got := MistypedDevices(job(device)); got != "" {
			t.Errorf("%s is called mistyped: %s", device, got)
		}
	}
}
