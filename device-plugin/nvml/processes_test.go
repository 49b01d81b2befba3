// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
)

// The real library's call lists processes, by GPU. A GPU without processes is not the same
// as one that does not answer, which may be in use.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	state := nvmltest.H200(5)
	state.Set("gpu0", "processes", "4712,4711")
	state.Set("gpu1", "graphics", "4714")
	state.Set("gpu2", "processes", "4713")
	state.Set("sys", "pids", dir)
	for _, name := range []string{fmt.Sprintf("%s.%d", nvmltest.UUID(3), os.Getpid()), nvmltest.UUID(3) + ".99999999"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	n := open(t, state)
	if got := n.Processes([]string{nvmltest.UUID(0)}); len(got) != 0 {
		t.Errorf("before the first scan: %v", got)
	}
	n.scan()
	n.set("gpu2", "lost", "1")
	n.set("gpu4", "ret.nvmlDeviceGetComputeRunningProcesses_v3", "3") // not supported
	got := n.Processes([]string{nvmltest.UUID(0), nvmltest.UUID(1), nvmltest.UUID(2), nvmltest.UUID(3), nvmltest.UUID(4), "GPU-none"})
	want := map[string][]int{nvmltest.UUID(0): {4711, 4712}, nvmltest.UUID(1): {4714}, nvmltest.UUID(3): {os.Getpid()}, nvmltest.UUID(4): nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A GPU whose processes the plugin may not see does not count as one without processes.
func TestProcessesThatMayNotBeSeen(t *testing.T) {
	for _, code := range []string{"4", "999", "17"} {
		state := nvmltest.H200(1)
		state.Set("gpu0", "processes", "4711")
		state.Set("gpu0", "ret.nvmlDeviceGetComputeRunningProcesses_v3", code)
		n := open(t, state)
		n.scan()
		if got := n.Processes([]string{nvmltest.UUID(0)}); len(got) != 0 {
			t.Errorf("%s: %v, want no answer", code, got)
		}
	}
}

// Drivers that write longer process records than NVML's are not asked for processes,
// because they would overwrite other memory.
func TestProcessesOfDriversWithLongerRecords(t *testing.T) {
	for driver, asked := range map[string]bool{"535.43.02": false, "535.86.10": false, "535.98": true, "535.104.05": true, "530.30.02": true, "": false} {
		t.Run(driver, func(t *testing.T) {
			state := nvmltest.H200(1)
			state.Set("gpu0", "processes", "4711,4712")
			state.Set("sys", "driver", driver)
			if !asked {
				state.Set("sys", "process_bytes", "32")
			}
			n := open(t, state)
			if inv := n.scan(); (len(inv.Warnings) == 0) != asked {
				t.Errorf("warnings %v", inv.Warnings)
			}
			want := map[string][]int{}
			if asked {
				want[nvmltest.UUID(0)] = []int{4711, 4712}
			}
			if diff := cmp.Diff(want, n.Processes([]string{nvmltest.UUID(0)})); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
