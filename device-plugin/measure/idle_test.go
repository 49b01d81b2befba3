// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda/fakecuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// showProcess adds a process with this environment to a /proc.
func showProcess(t *testing.T, proc, pid, env string) {
	t.Helper()
	dir := filepath.Join(proc, pid)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "environ"), []byte(strings.ReplaceAll(env, " ", "\x00")), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A task can order a measurement of a GPU that is its own according to its reservation's
// ticket. An invented ticket, or the name of a GPU, has no effect.
func TestTasksThatAskForTheirGPU(t *testing.T) {
	proc := t.TempDir()
	showProcess(t, proc, "1", "NOMAD_PAL_RESERVATION=ta NOMAD_PAL_MEASURE=1")
	showProcess(t, proc, "2", "NOMAD_PAL_RESERVATION=tb")
	showProcess(t, proc, "3", "NOMAD_PAL_RESERVATION=tx NOMAD_PAL_MEASURE=1")
	showProcess(t, proc, "4", "NOMAD_PAL_MEASURE=1")
	got := Runner{proc: proc}.tasks(map[string]string{"GPU-a": "ta", "GPU-b": "tb", "GPU-c": "tc", "GPU-d": ""})
	if diff := cmp.Diff(map[string]bool{"ta": true, "tb": false}, got); diff != "" {
		t.Errorf("tickets (-want +got)\n%s", diff)
	}
}

// The first utilization that NVML reads may be that of its own start.
func TestLoadThatDoesNotLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		r := Runner{proc: t.TempDir(), Sample: func(ids []string) map[string]gpu.Sample {
			out := map[string]gpu.Sample{}
			for _, id := range ids {
				out[id] = gpu.Sample{GPUPercent: new(int64(100))}
			}
			if looks++; looks > 1 {
				out["GPU-a"] = gpu.Sample{GPUPercent: new(int64(0))}
			}
			return out
		}}
		got := r.InUse([]gpu.Device{{ID: "GPU-a"}, {ID: "GPU-b"}}, []string{"GPU-a", "GPU-b"})
		if diff := cmp.Diff(map[string]string{"GPU-b": "utilization 100 %"}, got); diff != "" {
			t.Errorf("in use (-want +got)\n%s", diff)
		}
	})
}

// Another process keeps a GPU busy, whatever its memory looks like.
func TestUses(t *testing.T) {
	proc := t.TempDir()
	if err := os.Mkdir(filepath.Join(proc, "4711"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(proc, "4711", "comm"), []byte("py\x1b[2Jthon\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := Runner{proc: proc,
		Sample: func([]string) map[string]gpu.Sample {
			reserved := gpu.Sample{MemoryUsedMiB: new(int64(2000)), MemoryAllocatedMiB: new(int64(8))}
			return map[string]gpu.Sample{"GPU-c": {MemoryUsedMiB: new(int64(2000))}, "GPU-d": reserved, "GPU-f": {MemoryUsedMiB: new(int64(2000))}}
		},
		Processes: func([]string) map[string][]int {
			return map[string][]int{"GPU-a": {4711, 4712}, "GPU-b": {4713}, "GPU-c": nil, "GPU-d": nil, "GPU-f": nil}
		},
	}
	want := map[string]string{"GPU-a": "process 4711, py?[2Jthon", "GPU-b": "process 4713", "GPU-c": "2000 MiB of its memory", "GPU-d": "",
		"GPU-e": "the driver does not report which processes compute on it", "GPU-f": ""}
	got := map[string]string{}
	uses := r.uses([]gpu.Device{{ID: "GPU-f", SystemMemory: true}}, []string{"GPU-a", "GPU-b", "GPU-c", "GPU-d", "GPU-e", "GPU-f"})
	for id, u := range uses {
		got[id] = u.by
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// The plugin distinguishes a process that starts while a GPU is being measured from the
// measuring process.
func TestIntruders(t *testing.T) {
	proc := t.TempDir()
	for pid, stat := range map[string]string{
		"4711": fmt.Sprintf("4711 (nomad-device-pa) S %d 1 1", os.Getpid()), "4712": "4712 (a ) b) S 1 1 1", "4713": "4713 (odd)",
	} {
		if err := os.MkdirAll(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "stat"), []byte(stat), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := Runner{proc: proc, Processes: func([]string) map[string][]int {
		return map[string][]int{"GPU-a": {4711, 4713, 9999}, "GPU-b": {4711, 4712}, "GPU-c": {4711}}
	}}
	got := r.intruders([]string{"GPU-a", "GPU-b", "GPU-c", "GPU-d"})
	if diff := cmp.Diff(map[string]string{"GPU-b": "process 4712"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// The measuring process gets no token from its parent's environment, and uses no MPS server.
func TestChildHasAnEnvironmentOfItsOwn(t *testing.T) {
	t.Setenv("NOMAD_TOKEN", "secret")
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
	t.Setenv("CUDA_INJECTION64_PATH", "/tmp/x.so")
	t.Setenv("LD_LIBRARY_PATH", "/opt/driver")
	f := newFake(t)
	c, err := f.start(context.Background(), fakecuda.UUID(0), quick())
	if err != nil {
		t.Fatal(err)
	}
	defer c.close(true)
	if _, err := c.next(context.Background(), time.Minute); err != nil {
		t.Fatal(err)
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", c.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	got := slices.Sorted(slices.Values(strings.Split(strings.TrimSuffix(string(env), "\x00"), "\x00")))
	want := []string{"CUDA_CACHE_DISABLE=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_MPS_PIPE_DIRECTORY=/dev/null",
		"CUDA_VISIBLE_DEVICES=" + fakecuda.UUID(0), "LD_LIBRARY_PATH=/opt/driver:" + filepath.Dir(f.Library)} // the compiler lies beside the driver library
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
