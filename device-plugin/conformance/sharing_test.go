// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
)

func part(gpu, n int) string { return fmt.Sprint(nvmltest.UUID(gpu), "::", n) }

// all returns a condition: the four parts of GPU 1 exist, and is holds for each.
func all(is func(*device.Device) bool) func([]*device.DeviceGroup) bool {
	return func(gs []*device.DeviceGroup) bool {
		for n := range 4 {
			if d := instance(gs, part(1, n)); d == nil || !is(d) {
				return false
			}
		}
		return true
	}
}

// The parts of a GPU are unhealthy while NVIDIA's control daemon does not answer. The plugin asks the
// daemon in each scan, soon again after a failure.
func TestMPSDaemonAnswers(t *testing.T) {
	ours(t)
	w := driverless(t, nvmltest.H200(2))
	dir := t.TempDir()
	control, runs := filepath.Join(dir, "nvidia-cuda-mps-control"), filepath.Join(dir, "runs")
	program := fmt.Sprintf("#!/bin/sh\n[ -e %s ] && [ \"$CUDA_MPS_PIPE_DIRECTORY\" = /run/theirs ]\n", runs)
	if err := os.WriteFile(control, []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	w.env = append(w.env, "PATH="+dir+":"+os.Getenv("PATH"))
	w.launch()
	if err := w.Configure(fast + "\nsharing {\n  mode = \"mps\"\n  replicas = 4\n  gpus = [1]\n  pipe_directory = \"/run/theirs\"\n}\n"); err != nil {
		t.Fatal(err)
	}
	s := w.fingerprint()
	away := all(func(d *device.Device) bool { return !d.Healthy && d.HealthDesc == "mps-daemon" })
	s.until("no daemon", away)
	if d := instance(s.last, nvmltest.UUID(0)); d == nil || !d.Healthy {
		t.Error("the GPU that is not shared is unhealthy, too")
	}
	if err := os.WriteFile(runs, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s.until("the daemon", all(func(d *device.Device) bool { return d.Healthy }))
	res, err := w.Device.Reserve([]string{part(1, 0)})
	if err != nil || res.Envs["CUDA_MPS_PIPE_DIRECTORY"] != "/run/theirs" || res.Envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] != "25" ||
		len(res.Mounts) != 1 || !res.Mounts[0].ReadOnly {
		t.Errorf("reservation %+v, %v", res, err)
	}
	if err := os.Remove(runs); err != nil {
		t.Fatal(err)
	}
	s.until("its end", away)
}
