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
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda/fakecuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// A process is given GPUs by UUID, or by number if its container has the driver's devices.
// A container that watches all GPUs does not prevent measuring.
func TestGPUsGivenByTheEnvironment(t *testing.T) {
	all := []gpu.Device{
		{ID: "GPU-aaaa-1", Place: gpu.Place{BusID: "0000:b0:00.0", Minor: 1}},
		{ID: "GPU-bbbb-2", Place: gpu.Place{BusID: "0000:a0:00.0", Minor: 5}},
		{ID: "MIG-cccc-3", Parent: "GPU-dddd-4", Place: gpu.Place{BusID: "0000:c0:00.0", Minor: 2}},
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
		{"5", true, every[1:2]}, // as in /dev/nvidia5
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
		if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(claimsOf(proc, all, nil).given))); diff != "" {
			t.Errorf("%q, with devices %v (-want +got)\n%s", tc.value, tc.devices, diff)
		}
	}
}

// A process in a task or container was given the task's GPUs, as were the other processes
// there. A process that shares only the mounts, or only the GPUs, belongs to somebody else.
func TestGPUsOfTheOwnTask(t *testing.T) {
	proc := t.TempDir()
	for pid, p := range map[string]struct{ parent, mounts, given string }{
		"10": {"1", "node", ""},         // the container's shim
		"20": {"10", "task", "GPU-a"},   // the task's first process
		"30": {"20", "task", ""},        // a shell that lost the variable
		"40": {"30", "task", "GPU-b"},   // this process, which was given another GPU
		"41": {"20", "task", "GPU-a"},   // its neighbour in the task
		"42": {"10", "task", "GPU-a"},   // entered the container from outside
		"50": {"1", "node", "GPU-c"},    // a task without a container
		"51": {"1", "another", "GPU-a"}, // another container with the same GPU
		"52": {"20", "task", "GPU-d"},   // gives one more GPU to a child process
		"53": {"1", "unknown", "GPU-e"}, // its namespace cannot be read
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
	seen := func() []string { return slices.Sorted(maps.Keys(claimsOf(proc, all, nil).given)) }
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

// showProcess adds a process to a /proc: its environment, and the files in its root's /dev.
func showProcess(t *testing.T, proc, pid, env string, dev ...string) {
	t.Helper()
	dir := filepath.Join(proc, pid)
	if err := os.MkdirAll(filepath.Join(dir, "root/dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "environ"), []byte(strings.ReplaceAll(env, " ", "\x00")), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range dev {
		if err := os.WriteFile(filepath.Join(dir, "root/dev", name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// From version 1.18 on, NVIDIA's container toolkit gives a container its GPU's device file and
// NVIDIA_VISIBLE_DEVICES=void. A container with the files of all GPUs only watches them.
func TestGPUsGivenByTheirDeviceFile(t *testing.T) {
	two := []gpu.Device{{ID: "GPU-a", Place: gpu.Place{Minor: 3}}, {ID: "GPU-b", Place: gpu.Place{Minor: 5}}}
	for name, tc := range map[string]struct {
		all  []gpu.Device
		dev  []string
		want []string
	}{
		"one of two":          {two, []string{"nvidiactl", "nvidia5"}, []string{"GPU-b"}},
		"none":                {two, []string{"nvidiactl", "nvidia0"}, nil},
		"all":                 {two, []string{"nvidiactl", "nvidia3", "nvidia5"}, nil},
		"the only one":        {two[:1], []string{"nvidia3"}, []string{"GPU-a"}},
		"no minor is known":   {[]gpu.Device{{ID: "GPU-a", Place: gpu.Place{Minor: -1}}, two[1]}, []string{"nvidia-1"}, nil},
		"instances beside it": {append([]gpu.Device{{ID: "MIG-c", MIG: gpu.MIG{Profile: "1g"}, Place: gpu.Place{Minor: 7}}}, two...), []string{"nvidia3", "nvidia7"}, []string{"GPU-a"}},
	} {
		proc := t.TempDir()
		showProcess(t, proc, "4711", "NVIDIA_VISIBLE_DEVICES=void", tc.dev...)
		if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(claimsOf(proc, tc.all, nil).given))); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	// A privileged container has the file of the only GPU, too, and so has one that watches all GPUs.
	proc := t.TempDir()
	showProcess(t, proc, "4711", "", "nvidia3")
	showProcess(t, proc, "4712", "NVIDIA_VISIBLE_DEVICES=all", "nvidia3")
	if got := claimsOf(proc, two[:1], nil).given; len(got) > 0 {
		t.Errorf("of a GPU that nobody holds: %v", got)
	}
	// A process of the host has the host's root, and therefore all device files.
	proc = t.TempDir()
	showProcess(t, proc, "4711", "")
	root := filepath.Join(proc, "4711", "root")
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", root); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	contained(filepath.Join(proc, "4711"), "", two, found)
	if len(found) > 0 {
		t.Errorf("a process of the host has %v", found)
	}
}

// A task can order a measurement of a GPU that is its own according to its reservation's
// ticket. An invented ticket, or the name of a GPU, has no effect.
func TestTasksThatAskForTheirGPU(t *testing.T) {
	all := []gpu.Device{{ID: "GPU-a", Place: gpu.Place{Minor: 0}}, {ID: "GPU-b", Place: gpu.Place{Minor: 1}}, {ID: "GPU-c", Place: gpu.Place{Minor: 2}}}
	proc := t.TempDir()
	showProcess(t, proc, "1", "NOMAD_PAL_RESERVATION=ta NOMAD_PAL_MEASURE=1 NVIDIA_VISIBLE_DEVICES=void", "nvidia0")
	showProcess(t, proc, "2", "NOMAD_PAL_RESERVATION=tb NVIDIA_VISIBLE_DEVICES=GPU-b")
	showProcess(t, proc, "3", "NOMAD_PAL_RESERVATION=tx NOMAD_PAL_MEASURE=1 NVIDIA_VISIBLE_DEVICES=GPU-c")
	showProcess(t, proc, "4", "NOMAD_PAL_MEASURE=1 NVIDIA_VISIBLE_DEVICES=GPU-c")
	c := claimsOf(proc, all, map[string]string{"GPU-a": "ta", "GPU-b": "tb", "GPU-c": "tc"})
	if diff := cmp.Diff(map[string]bool{"ta": true, "tb": false}, c.shown); diff != "" {
		t.Errorf("tickets (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"GPU-b": true, "GPU-c": true}, c.given); diff != "" {
		t.Errorf("given (-want +got)\n%s", diff)
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

// Another process keeps a GPU busy, whatever its memory and environment look like.
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
	// The environments of all processes are read only for GPUs that otherwise seem idle.
	if err := os.WriteFile(filepath.Join(proc, "4711", "environ"), []byte("NVIDIA_VISIBLE_DEVICES=GPU-a"), 0o644); err != nil {
		t.Fatal(err)
	}
	all := []gpu.Device{{ID: "GPU-a"}, {ID: "GPU-d"}}
	if got, _ := r.uses(all, []string{"GPU-a"}, nil); got["GPU-a"].task {
		t.Error("environments were read for a GPU that computes")
	}
	if got, _ := r.uses(all, []string{"GPU-a", "GPU-d"}, nil); !got["GPU-a"].task {
		t.Error("environments were not read for a GPU that seems idle")
	}
	want := map[string]string{"GPU-a": "process 4711, py?[2Jthon", "GPU-b": "process 4713", "GPU-c": "2000 MiB of its memory", "GPU-d": "",
		"GPU-e": "the driver does not report which processes compute on it", "GPU-f": ""}
	got := map[string]string{}
	uses, _ := r.uses([]gpu.Device{{ID: "GPU-f", SystemMemory: true}}, []string{"GPU-a", "GPU-b", "GPU-c", "GPU-d", "GPU-e", "GPU-f"}, nil)
	for id, u := range uses {
		got[id] = u.String()
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
	got := r.intruders([]gpu.Device{{ID: "GPU-a"}, {ID: "GPU-b"}, {ID: "GPU-c"}, {ID: "GPU-d"}}, ids, nil)
	if diff := cmp.Diff(map[string]string{"GPU-b": "process 4712", "GPU-c": "a task holds it"}, got); diff != "" {
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
