// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda/fakecuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// A process is given GPUs by UUID, or by number where its container has the driver's
// devices. A container that watches all GPUs is no reason to measure none.
func TestVisibleTo(t *testing.T) {
	all := []gpu.Device{
		{ID: "GPU-aaaa-1", BusID: "0000:b0:00.0", Minor: 1},
		{ID: "GPU-bbbb-2", BusID: "0000:a0:00.0", Minor: 0},
		{ID: "MIG-cccc-3", Parent: "GPU-dddd-4", BusID: "0000:c0:00.0", Minor: 2},
	}
	every := []string{"GPU-aaaa-1", "GPU-bbbb-2", "MIG-cccc-3"}
	for _, tc := range []struct {
		value   string
		devices bool
		want    []string
	}{
		{"GPU-aaaa-1", false, every[:1]},
		{"GPU-bbbb,MIG-cccc-3", false, every[1:]},
		{"GPU-dddd-4", false, every[2:]},
		{"all", true, nil},
		{"all", false, nil},
		{"0", true, every[1:2]},
		{"0", false, nil},
		{"1, 2:0", true, []string{every[0], every[2]}},
		{"9", true, nil},
		{"none", true, nil}, {"void", true, nil}, {"", true, nil},
	} {
		proc := t.TempDir()
		dir := filepath.Join(proc, "4711")
		if err := os.MkdirAll(filepath.Join(dir, "root/dev"), 0o755); err != nil {
			t.Fatal(err)
		}
		env := "PATH=/bin\x00NVIDIA_VISIBLE_DEVICES=" + tc.value + "\x00"
		if err := os.WriteFile(filepath.Join(dir, "environ"), []byte(env), 0o644); err != nil {
			t.Fatal(err)
		}
		if tc.devices {
			if err := os.WriteFile(filepath.Join(dir, "root/dev/nvidiactl"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(visibleTo(proc, all)))); diff != "" {
			t.Errorf("%q, with devices %v (-want +got)\n%s", tc.value, tc.devices, diff)
		}
	}
}

// Who runs in a task or container was given its GPUs, and so were its other processes:
// they are nobody else's. Who shares the mounts, or the GPUs, but not both is somebody else.
func TestVisibleToOwnTask(t *testing.T) {
	proc := t.TempDir()
	for pid, p := range map[string]struct{ parent, mounts, given string }{
		"10": {"1", "node", ""},         // the shim
		"20": {"10", "task", "GPU-a"},   // the task's first process
		"30": {"20", "task", ""},        // a shell that lost the variable
		"40": {"30", "task", "GPU-b"},   // this process, which was told of another GPU
		"41": {"20", "task", "GPU-a"},   // its neighbour in the task
		"42": {"10", "task", "GPU-a"},   // entered the container from outside
		"50": {"1", "node", "GPU-c"},    // a task without a container
		"51": {"1", "another", "GPU-a"}, // another container with the same GPU
		"52": {"20", "task", "GPU-d"},   // gives a process of its own one GPU more
		"53": {"1", "unknown", "GPU-e"}, // no namespace can be read
	} {
		dir := filepath.Join(proc, pid)
		if err := os.MkdirAll(filepath.Join(dir, "ns"), 0o755); err != nil {
			t.Fatal(err)
		}
		err := os.WriteFile(filepath.Join(dir, "stat"), []byte(pid+" (sh) S "+p.parent+" 1 1"), 0o644)
		if err == nil && p.given != "" {
			err = os.WriteFile(filepath.Join(dir, "environ"), []byte("A=b\x00NVIDIA_VISIBLE_DEVICES="+p.given+"\x00"), 0o644)
		}
		if err == nil && p.mounts != "unknown" {
			err = os.Symlink("mnt:["+p.mounts+"]", filepath.Join(dir, "ns/mnt"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	all := []gpu.Device{{ID: "GPU-a"}, {ID: "GPU-b"}, {ID: "GPU-c"}, {ID: "GPU-d"}, {ID: "GPU-e"}}
	seen := func() []string { return slices.Sorted(maps.Keys(visibleTo(proc, all))) }
	if diff := cmp.Diff([]string{"GPU-a", "GPU-b", "GPU-c", "GPU-d", "GPU-e"}, seen()); diff != "" {
		t.Errorf("from outside (-want +got)\n%s", diff)
	}
	if err := os.Symlink("40", filepath.Join(proc, "self")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"GPU-a", "GPU-c", "GPU-d", "GPU-e"}, seen()); diff != "" {
		t.Errorf("beside another container (-want +got)\n%s", diff)
	}
	if err := os.RemoveAll(filepath.Join(proc, "51")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"GPU-c", "GPU-d", "GPU-e"}, seen()); diff != "" {
		t.Errorf("alone (-want +got)\n%s", diff)
	}
}

// Somebody's process keeps a GPU busy, whatever its memory and its environment
// look like.
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
	// The environments of all processes are read only for GPUs that seem idle.
	if err := os.WriteFile(filepath.Join(proc, "4711", "environ"), []byte("NVIDIA_VISIBLE_DEVICES=GPU-a"), 0o644); err != nil {
		t.Fatal(err)
	}
	all := []gpu.Device{{ID: "GPU-a"}, {ID: "GPU-d"}}
	if a := r.uses(all, []string{"GPU-a"})["GPU-a"]; a.task {
		t.Error("environments were read for a GPU that computes")
	}
	if a := r.uses(all, []string{"GPU-a", "GPU-d"})["GPU-a"]; !a.task {
		t.Error("environments were not read for a GPU that seems idle")
	}
	want := map[string]string{"GPU-a": "process 4711, py?[2Jthon", "GPU-b": "process 4713", "GPU-c": "2000 MiB of its memory", "GPU-d": "",
		"GPU-e": "the driver does not say what computes on it", "GPU-f": ""}
	got := map[string]string{}
	for id, u := range r.uses([]gpu.Device{{ID: "GPU-f", SystemMemory: true}}, []string{"GPU-a", "GPU-b", "GPU-c", "GPU-d", "GPU-e", "GPU-f"}) {
		got[id] = u.String()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Who comes while a GPU is being measured is told from the process that measures it.
func TestIntruders(t *testing.T) {
	proc := t.TempDir()
	for pid, stat := range map[string]string{
		"4711": fmt.Sprintf("4711 (nomad-device-pa) S %d 1 1", os.Getpid()), "4712": "4712 (a ) b) S 1 1 1", "4713": "4713 (odd)", "4714": "4714 (sh) S 1 1 1",
	} {
		if err := os.MkdirAll(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "stat"), []byte(stat), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(proc, "4714", "environ"), []byte("NVIDIA_VISIBLE_DEVICES=GPU-c"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := Runner{proc: proc, Processes: func([]string) map[string][]int {
		return map[string][]int{"GPU-a": {4711, 4713, 9999}, "GPU-b": {4711, 4712}, "GPU-c": {4711}}
	}}
	ids := []string{"GPU-a", "GPU-b", "GPU-c", "GPU-d"}
	got := r.intruders([]gpu.Device{{ID: "GPU-a"}, {ID: "GPU-b"}, {ID: "GPU-c"}, {ID: "GPU-d"}}, ids)
	if diff := cmp.Diff(map[string]string{"GPU-b": "process 4712", "GPU-c": "a task was given it"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// The measuring process gets no token of its parent's, and no server to share
// the GPU with.
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
		"CUDA_VISIBLE_DEVICES=" + fakecuda.UUID(0), "LD_LIBRARY_PATH=/opt/driver:" + filepath.Dir(f.Library)} // the compiler lies beside it
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
