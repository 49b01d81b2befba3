// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package hardware

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda/fakecuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/device-plugin/nvml"
	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
)

// The test binary is its own measuring process, and its own plugin.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case measure.ChildCommand:
			os.Exit(measure.ChildMain(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case "doctor":
			fmt.Println(`[{"check":"driver","status":"fail","message":"no driver | here"}]`)
			os.Exit(1)
		case "fingerprint":
			fmt.Println("not JSON")
			os.Exit(0)
		}
	}
	dir, err := os.MkdirTemp("", "hardware")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	shared = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// shared is the folder of the library that plays NVML: a process binds NVML's
// symbols once, so that all tests have the same one, and write its state again.
var (
	shared      string
	nvmlLibrary = sync.OnceValues(func() (string, error) { return nvmltest.Build(shared) })
)

// box is a machine with two H200s that both fake libraries play, and an
// nvidia-smi that has the first GPU's power limit wrong.
func box(t *testing.T, settings ...string) Options {
	t.Helper()
	dir := t.TempDir()
	lib, err := fakecuda.Build(dir)
	if errors.Is(err, fakecuda.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	smi, err := nvmlLibrary()
	if err != nil {
		t.Fatal(err)
	}
	state := nvmltest.H200(2)
	state.Set("sys", "pids", dir)
	for i := range 2 {
		settings = append(settings, fmt.Sprintf("uuid.%d=%s", i, nvmltest.UUID(i)))
		state.Set(fmt.Sprintf("gpu%d", i), "sm_mhz", "1900")
	}
	settings = append(settings, "gpus=2", "scale=0.001", "pids="+dir, "xid="+smi+".state")
	if err := state.Write(smi + ".state"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lib+".settings", []byte(strings.Join(settings, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	var program strings.Builder
	program.WriteString("#!/bin/sh\n")
	for i, watts := range []int{600, 700} {
		program.WriteString(fmt.Sprintf("echo '%s, NVIDIA H200, 580.159.04, 00000000:%02X:00.0, [N/A], Enabled, Enabled, 143771, %d.00, 1980, 3201'\n", nvmltest.UUID(i), 0x1a+i, watts))
	}
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(program.String()), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := Pace{First: 20 * time.Millisecond, Next: 5 * time.Millisecond, Kernel: 20 * time.Second, Job: 2 * time.Second, Event: 30 * time.Second,
		Session: measure.DefaultPlan()}
	p.Session.Warmup, p.Session.Limit, p.Session.Settle = 50*time.Millisecond, 20*time.Second, 5*time.Millisecond
	return Options{Self: self, Child: []string{self, measure.ChildCommand}, Version: "test", NVML: smi, CUDA: lib, Out: filepath.Join(dir, "out/box"),
		Runs: 2, Faults: true, Pace: p, Say: io.Discard,
		Open: func(library string) Backend {
			return nvml.Open(nvml.Options{Library: library})
		}}
}

// A whole run on two GPUs, one of which computes wrongly, beside an nvidia-smi
// that disagrees: both are on the page, and all else was tried.
func TestRun(t *testing.T) {
	o := box(t, "wrong.1=1")
	r, err := o.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var stored Record
	data, err := os.ReadFile(o.Out + ".json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &stored); err != nil || stored.Format != Format || len(stored.Claims) != len(r.Claims) {
		t.Errorf("stored record: %v, format %q, %d claims", err, stored.Format, len(stored.Claims))
	}
	verdicts := map[string]Claim{}
	for _, c := range r.Claims {
		verdicts[c.Text] = c
	}
	for text, want := range map[string]struct {
		v     Verdict
		found string
	}{
		"every step can be done":                                                       {Disagrees, "fingerprint: fingerprint: no answer in JSON"},
		"our scan says what nvidia-smi says":                                           {Disagrees, `GPU-00000000 enforced.power.limit: ours "700", nvidia-smi "600.00"`},
		"an idle GPU uses at most 1 GiB of its memory":                                 {Agrees, ""},
		"a kernel computes the same in each run and on each GPU of a model":            {Disagrees, "triad1 on NVIDIA H200: 2 results"},
		"a GPU that a process computes on counts as in use":                            {Agrees, "process "},
		"a killed measurement is gone within 2 s":                                      {Agrees, ""},
		"faults end in an error that says what happened, and the GPU works afterwards": {Agrees, "6 faults"},
		"the driver's event of an Xid arrives within 1 s":                              {"", "Xid 31 after "}, // whatever this machine takes
	} {
		if c := verdicts[text]; want.v != "" && c.Verdict != want.v || !strings.Contains(c.Found, want.found) {
			t.Errorf("%s: %s, %q; want %s, %q", text, c.Verdict, c.Found, want.v, want.found)
		}
	}
	if len(r.Kernels) != 10 || len(r.Session) != 2 {
		t.Errorf("%d kernels, %d sessions, want 5 kernels on each of 2 GPUs", len(r.Kernels), len(r.Session))
	}
	for _, k := range r.Kernels {
		for _, run := range k.Runs {
			if run.Problem != "" || run.Rate == 0 || run.Sum == "" || len(k.Runs) != 2 {
				t.Errorf("%s on %s: %+v", k.Kernel, k.GPU, run)
			}
		}
	}
	page, err := os.ReadFile(o.Out + ".md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 × NVIDIA H200.", "| triad1 |", "| every step can be done | DISAGREES |", "- fail, driver: no driver / here", "The job on GPU-00000000 took "} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

// Without NVML the CUDA driver lists the GPUs, and what only NVML can see is not
// held against anybody.
func TestRunWithoutNVML(t *testing.T) {
	o := box(t)
	o.NVML, o.Runs, o.Faults = "libnone.so.1", 1, false
	r, err := o.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var kernels []string
	for _, k := range r.Kernels {
		kernels = append(kernels, k.Kernel)
	}
	want := []string{"wgmma1", "wgmma1", "mma1", "mma1", "ffma1", "ffma1", "triad1", "triad1", "gather1", "gather1"}
	if diff := cmp.Diff(want, kernels); diff != "" {
		t.Errorf("kernels (-want +got)\n%s", diff)
	}
	for _, c := range r.Claims {
		if seen := c.Verdict != Unseen; seen && (strings.Contains(c.Text, "counts as in use") || strings.Contains(c.Text, "power cap")) {
			t.Errorf("%s: %s, %q", c.Text, c.Verdict, c.Found)
		}
	}
}

// Where CUDA is missing nothing is measured: one claim says so, and no other is
// contradicted by what was never tried.
func TestRunWithoutCUDA(t *testing.T) {
	o := box(t)
	o.CUDA = "libnone.so.1"
	r, err := o.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.GPUs) != 2 || !strings.Contains(r.Claims[0].Found, `scan: opening CUDA driver library "libnone.so.1"`) {
		t.Errorf("%d GPUs, %+v", len(r.GPUs), r.Claims[0])
	}
	for _, c := range r.Claims[3:] { // those before need no CUDA
		if c.Verdict != Unseen {
			t.Errorf("%s: %s, %q", c.Text, c.Verdict, c.Found)
		}
	}
}

// Without a driver everything is tried all the same, and said.
func TestRunWithoutAnything(t *testing.T) {
	o := box(t)
	o.NVML, o.CUDA = "libnone.so.1", "libnone.so.1"
	r, err := o.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.GPUs) != 0 || len(r.Steps) != len((&run{Options: o}).steps()) || r.Claims[0].Verdict != Disagrees {
		t.Errorf("%d GPUs, %d steps, %+v", len(r.GPUs), len(r.Steps), r.Claims[0])
	}
	for _, c := range r.Claims[2:] {
		if c.Verdict != Unseen {
			t.Errorf("%s: %s, %q", c.Text, c.Verdict, c.Found)
		}
	}
}

func TestCompareSMI(t *testing.T) {
	d := gpu.Device{ID: "GPU-1", Model: "NVIDIA H200", BusID: "0000:1a:00.0", MemoryMiB: new(int64(143771)), PowerLimitW: new(int64(700)),
		CoresClockMHz: new(int64(1980)), MemoryClockMHz: new(int64(3201)), PersistenceMode: "Enabled", ECC: new(true), VBIOS: "96.00"}
	good := "GPU-1, NVIDIA H200, 580.1, 00000000:1A:00.0, 96.00, Enabled, Enabled, 143770, 700.00, 1980, 3201\n"
	for name, tc := range map[string]struct {
		answer string
		want   []Mismatch
	}{
		"the same":      {good, nil},
		"another clock": {strings.Replace(good, "1980", "1830", 1), []Mismatch{{"GPU-1", "clocks.max.sm", "1980", "1830"}}},
		"not supported": {strings.Replace(good, "96.00", "[N/A]", 1), []Mismatch{{"GPU-1", "vbios_version", "96.00", ""}}},
		"another GPU":   {strings.Replace(good, "GPU-1", "GPU-2", 1), []Mismatch{{"GPU-1", "uuid", "GPU-1", ""}, {"GPU-2", "uuid", "", "GPU-2"}}},
	} {
		s, err := compareSMI(tc.answer, []gpu.Device{d}, "580.1")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, s.Differ); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	if _, err := compareSMI("No devices were found\n", []gpu.Device{d}, "580.1"); err == nil {
		t.Error("an answer that is no table was read")
	}
}
