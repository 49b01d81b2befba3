// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"testing"

	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
)

// A broken InfoROM answers with bytes that are not text. gRPC refuses to send them. If
// Nomad cannot receive a plugin's message, it drops the plugin until the agent restarts.
func TestDriverThatAnswersGarbage(t *testing.T) {
	ours(t)
	for _, tc := range []struct {
		what, scope, key, value string
		healthy                 int // healthy devices among 3 GPUs, or among 2 GPUs and 2 instances
	}{
		{"name", "gpu1", "name", "NVIDIA \xff\xfe\x01", 3},
		{"UUID", "gpu1", "uuid", "GPU-\xff\xfe", 2},
		{"UUID with a comma", "gpu1", "uuid", "GPU-1,GPU-2", 2},
		{"driver version", "sys", "driver", "580\xff", 3},
		{"memory", "gpu1", "memory_mib", "18446744073709551615", 3},
		{"power limit", "gpu1", "limit_mw", "4294967295", 3},
		{"PCIe generation", "gpu1", "pcie_gen", "4294967295", 3},
		{"architecture", "gpu1", "architecture", "4294967295", 3},
		{"compute capability", "gpu1", "capability", "0", 3},
		{"MIG mode", "gpu1", "mig", "4294967295", 3},
		{"most MIG instances", "gpu0", "mig_max", "4294967295", 4},
	} {
		t.Run(tc.what, func(t *testing.T) {
			state := nvmltest.H200(3)
			if tc.key == "mig_max" {
				state.Split(0, 2)
			}
			state.Set(tc.scope, tc.key, tc.value)
			s := start(t, state, fast).fingerprint()
			s.until("the GPUs", func(gs []*device.DeviceGroup) bool {
				n := 0
				for _, g := range gs {
					for _, d := range g.Devices {
						if d.Healthy {
							n++
						}
					}
				}
				return n == tc.healthy
			})
		})
	}
}
