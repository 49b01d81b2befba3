// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package hardware

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
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
	"github.com/nomad-pal/nomad-pal/internal/guard"
)

// The test binary also acts as the measuring process and as the plugin.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case measure.ChildCommand:
			os.Exit(measure.ChildMain(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case FaultCommand:
			os.Exit(FaultMain(os.Args[2:]))
		case "kit":
			o := options(os.Args[2], os.Args[3], os.Args[4])
			o.Say = os.Stdout
			if _, err := o.Run(context.Background()); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			os.Exit(0)
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
	code := guard.Main(m)
	os.RemoveAll(dir)
	os.Exit(code)
}

// shared is the folder of the fake NVML. A process binds NVML's symbols once, so all tests
// use the same library, and each writes its state again.
var (
	shared      string
	nvmlLibrary = sync.OnceValues(func() (string, error) { return nvmltest.Build(shared) })
)

// box is a machine with two H200s in both fake libraries, and an nvidia-smi that reports a
// wrong power limit for the first GPU.
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
	return options(smi, lib, filepath.Join(dir, "out/box"))
}

// options returns the options of a run with fakes of NVIDIA's libraries.
func options(smi, cuda, out string) Options {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	p := Pace{Warm: 5 * time.Millisecond, Kernel: 2 * time.Minute, Job: 300 * time.Millisecond, Event: 30 * time.Second, Soak: 200 * time.Millisecond,
		Session: measure.DefaultPlan()}
	p.Session.Warmup, p.Session.Limit, p.Session.Settle = 50*time.Millisecond, 2*time.Minute, 5*time.Millisecond
	return Options{Self: self, Plugin: self, Version: "test", NVML: smi, CUDA: cuda, Out: out,
		Budget: time.Hour, Runs: 2, Faults: true, Pace: p, Say: io.Discard,
		Open: func(library string) Backend {
			return nvml.Open(nvml.Options{Library: library})
		}}
}

// TestRun makes a whole run on two GPUs, one of which computes wrongly, with an nvidia-smi
// that disagrees. The page shows both problems, and everything else was tried.
func TestRun(t *testing.T) {
	o := box(t, "wrong.1=1")
	o.Pace.Job, o.Pace.Soak = 2*time.Second, 2*time.Second // long enough for the idle check, and for one whole point of the curve
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
		"every step can be done":                                                       {Disagrees, `fingerprint: the output is not JSON: "not JSON\n"`},
		"our scan agrees with nvidia-smi":                                              {Disagrees, `GPU-00000000 enforced.power.limit: ours "700", nvidia-smi "600.00"`},
		"an idle GPU uses at most 1 GiB of its memory":                                 {Agrees, ""},
		"a kernel gives the same result in each run and on each GPU of a model":        {Disagrees, "triad1 on NVIDIA H200: 2 results"},
		"a GPU counts as in use while a process computes on it":                        {Agrees, "process "},
		"a killed measurement ends within 2 s":                                         {"", " s"}, // depends on this machine's speed
		"faults end in an error that says what happened, and the GPU works afterwards": {Agrees, "6 faults"},
		"the driver's event of an Xid arrives within 1 s":                              {"", "Xid 31 after "}, // depends on this machine's speed
	} {
		if c := verdicts[text]; want.v != "" && c.Verdict != want.v || !strings.Contains(c.Found, want.found) {
			t.Errorf("%s: %s, %q; want %s, %q", text, c.Verdict, c.Found, want.v, want.found)
		}
	}
	if len(r.Kernels) != 10 || len(r.Session) != 2 || len(r.Soak) != 2 || len(r.Soak[0].Points) == 0 {
		t.Errorf("%d kernels, %d sessions, soak %+v, want 5 kernels on each of 2 GPUs", len(r.Kernels), len(r.Session), r.Soak)
	}
	for _, s := range r.Session {
		if s.Partial || len(s.Apps) != 4 {
			t.Errorf("session of %s: partial %v %q, %d classes", s.GPU, s.Partial, s.Problem, len(s.Apps))
		}
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

// Without NVML the CUDA driver lists the GPUs, and claims that need NVML do not count.
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

// Without CUDA, or without any driver, nothing is measured, but everything is still tried and
// reported. One claim reports it, and claims that were not tried count as neither true nor false.
func TestRunWithoutCUDA(t *testing.T) {
	const none, cuda = "libnone.so.1", `CUDA driver library "libnone.so.1"`
	for _, c := range []struct {
		nvml  string // "": the fake
		gpus  int
		tried int // the claims before these need no CUDA
		found string
	}{
		{"", 2, 3, "scan: opening " + cuda},
		{none, 0, 2, cuda},
	} {
		o := box(t)
		o.CUDA = none
		if c.nvml != "" {
			o.NVML = c.nvml
		}
		r, err := o.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if first := r.Claims[0]; len(r.GPUs) != c.gpus || len(r.Steps) != len((&run{Options: o}).steps()) || first.Verdict != Disagrees || !strings.Contains(first.Found, c.found) || !strings.Contains(first.Found, c.nvml) {
			t.Errorf("%d GPUs, %d steps, %+v", len(r.GPUs), len(r.Steps), first)
		}
		for _, claim := range r.Claims[c.tried:] {
			if claim.Verdict != Unseen {
				t.Errorf("%s: %s, %q", claim.Text, claim.Verdict, claim.Found)
			}
		}
	}
}

// GPUs in use are left alone, which is reported once. With -force they are measured.
func TestRunOnGPUsInUse(t *testing.T) {
	o := box(t)
	o.Runs, o.Faults = 1, false
	state := nvmltest.H200(2)
	for i := range 2 {
		state.Set(fmt.Sprintf("gpu%d", i), "processes", "1")
	}
	if err := state.Write(o.NVML + ".state"); err != nil {
		t.Fatal(err)
	}
	r, err := o.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Claims[0].Found; strings.Count(f, "no GPU that can be measured") != 1 || !strings.Contains(f, "GPU-00000000: process 1") || !strings.Contains(f, "-force") {
		t.Errorf("%q", f)
	}
	if len(r.Kernels) > 0 {
		t.Errorf("measured: %+v", r.Kernels)
	}
	o.Force = true
	if r, err = o.Run(t.Context()); err != nil || len(r.Kernels) != 10 || !strings.Contains(Page(r), "In use, but measured anyway") {
		t.Errorf("by force: %d kernels, %v\n%s", len(r.Kernels), err, Page(r))
	}
}

// A run that is interrupted still reports everything that it found.
func TestInterruptedRun(t *testing.T) {
	o := box(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said, say := io.Pipe()
	o.Say = say
	go func() {
		for s := bufio.NewScanner(said); s.Scan(); {
			if strings.Contains(s.Text(), "mma1 on GPU-") {
				cancel()
			}
		}
	}()
	r, err := o.Run(ctx)
	say.Close()
	if err != nil || !r.Interrupted || len(r.Kernels) == 0 {
		t.Fatalf("%v, interrupted %v, %d kernels", err, r.Interrupted, len(r.Kernels))
	}
	for _, k := range r.Kernels {
		for _, run := range k.Runs {
			if run.Problem != "" {
				t.Errorf("%s was cut short, but counts: %+v", k.Kernel, run)
			}
		}
	}
	for _, c := range r.Claims {
		if c.Verdict == Disagrees && strings.Contains(c.Text+c.Found, "canceled") {
			t.Errorf("the interruption counts as a fault of the machine: %s: %s", c.Text, c.Found)
		}
	}
	if !strings.Contains(Page(r), "Somebody ended the run early") {
		t.Error(Page(r))
	}
}

// A kill at any moment loses at most the measurement in progress: all files are complete,
// and contain what was reported.
func TestKilledRun(t *testing.T) {
	const kills = 4
	o := box(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	longest := 4 * time.Second
	for i := range kills {
		out := fmt.Sprintf("%s-%d", o.Out, i)
		cmd := exec.Command(o.Self, "kit", o.NVML, o.CUDA, out)
		stdout, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		after := time.Duration(random.Int64N(int64(longest)))
		timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		var said []string
		for s := bufio.NewScanner(stdout); s.Scan(); {
			said = append(said, s.Text())
		}
		timer.Stop()
		_ = cmd.Wait() // usually it was killed
		checkKilled(t, after, out, said)
	}
}

// checkKilled compares the files with the reported results.
func checkKilled(t *testing.T, after time.Duration, out string, said []string) {
	t.Helper()
	runs, classes := 0, 0
	for _, line := range said {
		if strings.Contains(line, "1 on GPU-") && strings.Contains(line, ", run ") {
			runs++
		}
		if strings.Contains(line, "  class ") && strings.Contains(line, " on GPU-") {
			classes++
		}
	}
	data, err := os.ReadFile(out + ".json")
	if errors.Is(err, os.ErrNotExist) && runs == 0 && classes == 0 {
		return // nothing had been found yet
	}
	var r Record
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		t.Fatalf("killed after %s: %v", after, err)
	}
	kept := 0
	for _, k := range r.Kernels {
		kept += len(k.Runs)
	}
	if kept < runs || kept > runs+1 { // one run may be written but not reported yet
		t.Errorf("killed after %s: %d runs in the file, %d reported", after, kept, runs)
	}
	measured := 0
	for _, s := range r.Session {
		measured += len(s.Apps)
	}
	if measured < classes || measured > classes+1 {
		t.Errorf("killed after %s: %d classes in the file, %d reported", after, measured, classes)
	}
	page, err := os.ReadFile(out + ".md")
	if err != nil && len(said) > 0 && strings.Contains(said[len(said)-1], " s  ") || len(page) > 0 && !strings.Contains(string(page), "## Steps") {
		t.Errorf("killed after %s: the page is not whole: %v\n%s", after, err, page)
	}
	log, err := os.ReadFile(out + ".log")
	if err != nil || !strings.HasPrefix(string(log), strings.Join(said, "\n")) {
		t.Errorf("killed after %s: the log lacks what was reported: %v", after, err)
	}
}

// NVIDIA's assembler accepts the kernel that writes to an invalid address, for the oldest and the newest GPUs that are
// measured.
func TestFaultAssembles(t *testing.T) {
	ptxas := os.Getenv("PTXAS")
	if ptxas == "" {
		t.Skip("no ptxas in PTXAS (make ptxas fetches one): the kernel is not assembled here")
	}
	for _, arch := range []string{"sm_70", "sm_90"} {
		if out, err := exec.Command(ptxas, "-arch="+arch, "-o", os.DevNull, "fault.ptx").CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", arch, err, out)
		}
	}
}

func TestCompareSMI(t *testing.T) {
	d := gpu.Device{ID: "GPU-1", Model: "NVIDIA H200", Place: gpu.Place{BusID: "0000:1a:00.0"}, MemoryMiB: new(int64(143771)), PowerLimitW: new(int64(700)),
		CoresClockMHz: new(int64(1980)), MemoryClockMHz: new(int64(3201)), PersistenceMode: "Enabled", ECC: new(true), Chip: gpu.Chip{VBIOS: "96.00"}}
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
		t.Error("an answer that is not a table was accepted")
	}
}
