// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/cuda/fakecuda"
)

// library builds the fake driver with these settings.
func library(t *testing.T, settings ...string) string {
	t.Helper()
	dir := t.TempDir()
	lib, err := fakecuda.Build(dir)
	if errors.Is(err, fakecuda.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	tell(t, dir, settings...)
	return lib
}

func tell(t *testing.T, dir string, settings ...string) {
	t.Helper()
	file := filepath.Join(dir, "settings")
	if err := os.WriteFile(file, []byte(strings.Join(settings, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv(fakecuda.Env, file)
}

// trivial is PTX that the fake driver accepts as the FFMA kernel.
const trivial = ".version 6.0\n.target sm_70\n.visible .entry pal_ffma()"

func TestKernelRuns(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d, err := cuda.Open(library(t, "gpus=3", "noise=0", "slow.1=2"))
	if err != nil {
		t.Fatal(err)
	}
	if major, minor, err := d.Version(); err != nil || major != 13 || minor != 0 {
		t.Errorf("CUDA version %d.%d, %v", major, minor, err)
	}
	devices, err := d.Devices()
	if err != nil || len(devices) != 3 {
		t.Fatalf("%d devices, %v", len(devices), err)
	}
	want := cuda.Device{UUID: fakecuda.UUID(1), Name: "NVIDIA H200", Major: 9, SMs: 132, ClockMHz: 1980, MemClockMHz: 3201,
		BusBits: 6144, MemoryBytes: 140 << 30}
	if diff := cmp.Diff(want, devices[1], cmpopts.IgnoreUnexported(cuda.Device{})); diff != "" {
		t.Errorf("device (-want +got)\n%s", diff)
	}
	if ms := timeLaunch(t, d, devices[1]); math.Abs(ms-2*timeLaunch(t, d, devices[0])) > 1e-3 {
		t.Errorf("the slow GPU takes %v ms", ms)
	}
}

func timeLaunch(t *testing.T, d *cuda.Driver, dev cuda.Device) float64 {
	t.Helper()
	c, err := d.Context(dev)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fn, err := c.Load([]byte(trivial), "pal_ffma")
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	from, err := c.Event()
	if err != nil {
		t.Fatal(err)
	}
	to, err := c.Event()
	if err != nil {
		t.Fatal(err)
	}
	iters, a, b := uint32(10000), float32(0.5), float32(1)
	for _, step := range []error{
		c.Fill(out, 7), c.Record(from),
		c.Launch(fn, cuda.Grid{Blocks: 528, Threads: 256}, &out.Address, &iters, &a, &b),
		c.Record(to), c.Wait(to), c.Read(out, make([]byte, 16)), c.Free(out),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	ms, err := c.Milliseconds(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return ms
}

func TestOpenErrors(t *testing.T) {
	if _, err := cuda.Open("libnone.so.9"); err == nil || !strings.Contains(err.Error(), `"libnone.so.9" (is the NVIDIA driver installed?)`) {
		t.Errorf("no library: %v", err)
	}
	if _, err := cuda.Open("libc.so.6"); err == nil || !strings.Contains(err.Error(), "has no cuInit: the driver is too old") {
		t.Errorf("a library without CUDA: %v", err)
	}
	_, err := cuda.Open(library(t, "fail=no-device"))
	if cuda.CodeOf(err) != cuda.NoDevice || !strings.Contains(err.Error(), "CUDA_ERROR_NO_DEVICE (100), because this process sees no GPU") {
		t.Errorf("no device: %v", err)
	}
}

func TestFailures(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, tc := range []struct {
		fail   string
		want   string
		sticky bool
	}{
		{"busy", "CUDA_ERROR_DEVICE_UNAVAILABLE (46), because the GPU is in use in exclusive mode", true},
		{"jit", "CUDA_ERROR_INVALID_PTX (218): ptxas: line 7; fatal: syntax error", false},
		{"too-new", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222), because the GPU or the driver is too old for this kernel", false},
		{"no-jit", "CUDA_ERROR_JIT_COMPILER_NOT_FOUND (221), because libnvidia-ptxjitcompiler.so.1 is not found: install this library", false},
		{"mismatch", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803), because the CUDA library and the loaded kernel driver have different versions: reload the driver or reboot", true},
		{"no-compat", "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804), because a CUDA compatibility package (cuda-compat), which this GPU does not support, is found before", true},
		{"no-binary", "CUDA_ERROR_NO_BINARY_FOR_GPU (209)", false},
		{"oom", "allocating 2 MiB of the GPU's memory: CUDA_ERROR_OUT_OF_MEMORY (2)", false},
		{"lost", "launching a kernel: CUDA_ERROR_LAUNCH_FAILED (719)", true},
		{"ecc", "launching a kernel: CUDA_ERROR_ECC_UNCORRECTABLE (214)", true},
	} {
		t.Run(tc.fail, func(t *testing.T) {
			err := run(library(t, "gpus=1", "fail="+tc.fail))
			if err == nil || !strings.Contains(err.Error(), tc.want) || cuda.Sticky(err) != tc.sticky {
				t.Errorf("error %v (sticky %v), want %q (%v)", err, cuda.Sticky(err), tc.want, tc.sticky)
			}
		})
	}
}

func run(lib string) error {
	d, err := cuda.Open(lib)
	if err != nil {
		return err
	}
	devices, err := d.Devices()
	if err != nil {
		return err
	}
	c, err := d.Context(devices[0])
	if err != nil {
		return err
	}
	defer c.Close()
	fn, err := c.Load([]byte(trivial), "pal_ffma")
	if err != nil {
		return err
	}
	out, err := c.Alloc(2 << 20)
	if err != nil {
		return err
	}
	if err := c.Launch(fn, cuda.Grid{Blocks: 1, Threads: 1}, 7); err == nil || err.Error() != "kernel argument 0 is a int" {
		return fmt.Errorf("an int as an argument: %w", err)
	}
	iters, a := uint32(1), float32(1)
	return c.Launch(fn, cuda.Grid{Blocks: 1, Threads: 1}, &out.Address, &iters, &a, &a)
}
