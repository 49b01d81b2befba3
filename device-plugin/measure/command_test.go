// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda/fakecuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// machine is a fake NVML: an inventory and the activity of each GPU.
type machine struct {
	inv     gpu.Inventory
	err     error
	samples map[string]gpu.Sample
	pids    map[string][]int
}

func (m machine) Scan() (gpu.Inventory, error)              { return m.inv, m.err }
func (m machine) Sample(ids []string) map[string]gpu.Sample { return m.samples }
func (m machine) Processes(ids []string) map[string][]int {
	out := map[string][]int{}
	for _, id := range ids {
		out[id] = m.pids[id]
	}
	return out
}
func (m machine) Close() {}

func twoGPUs() machine {
	idle := gpu.Sample{GPUPercent: new(int64(0)), MemoryUsedMiB: new(int64(4)), Throttle: new("power-cap"),
		PowerW: new(698.0), SMClockMHz: new(int64(1500)), TemperatureC: new(int64(60))}
	return machine{
		inv:     gpu.Inventory{DriverVersion: "580.159.04", Devices: []gpu.Device{target(0).Device, target(1).Device}},
		samples: map[string]gpu.Sample{fakecuda.UUID(0): idle, fakecuda.UUID(1): idle},
	}
}

// free is a Nomad whose allocations hold no GPU.
func free(context.Context, []string) (map[string]string, error) { return nil, nil }

// run runs the subcommand on that machine, on which no task runs.
func run(f fake, m machine, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	c := Command{Self: f.Self, Open: func(string) Backend { return m }, Allocated: free, Stdout: &out, Stderr: &errs, proc: f.settings + ".proc"}
	code = c.Run(append([]string{"-cuda=" + f.Library, "-warmup=20ms"}, args...))
	return code, out.String(), errs.String()
}

func TestMeasureCommand(t *testing.T) {
	t.Parallel()
	f := newFake(t, "slow.1=1.2", "scale=0.01") // long enough for telemetry, which is read five times a second
	file := filepath.Join(t.TempDir(), "report.json")
	code, out, errs := run(f, twoGPUs(), "-out="+file)
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	for _, want := range []string{
		fakecuda.UUID(0) + "  NVIDIA H200  A      ", "TFLOP/s", "GB/s", "Gload/s", "power",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the table lacks %q:\n%s", want, out)
		}
	}
	if !strings.Contains(errs, fakecuda.UUID(1)+": class C (") || !strings.Contains(errs, "report written to "+file) {
		t.Errorf("progress:\n%s", errs)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseReport(data)
	if err != nil || len(r.Results) != 2 {
		t.Fatalf("%d results, %v", len(r.Results), err)
	}
	again, err := r.Encode()
	if err != nil || !bytes.Equal(again, data) {
		t.Errorf("reading and writing a report changes it (%v):\n%s", err, cmp.Diff(string(data), string(again)))
	}
	p, err := profile.Build(samples(r), profile.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if e, ok := p.Lookup(fakecuda.UUID(1), "A"); !ok || e.Score < 1.19 || e.Score > 1.21 {
		t.Errorf("calibrated, the slower GPU is %+v", e)
	}
}

func TestMeasureOneOfTwo(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "report.json")
	code, _, errs := run(newFake(t), twoGPUs(), "-out="+file, fakecuda.UUID(1))
	data, err := os.ReadFile(file)
	if code != 0 || err != nil {
		t.Fatalf("exit code %d: %s, %v", code, errs, err)
	}
	r, err := parseReport(data)
	if err != nil || len(r.Results) != 1 || r.Results[0].GPU != fakecuda.UUID(1) || r.Results[0].Beside != 0 || r.Results[0].Of != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A driver that hangs does not hang the command.
func TestMeasureWithAHungDriver(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	var errs bytes.Buffer
	c := Command{Open: func(string) Backend { return hung{over: over} }, Stdout: io.Discard, Stderr: &errs, patience: time.Millisecond}
	if code := c.Run(nil); code != 1 || !strings.Contains(errs.String(), "the driver does not answer within 1ms") {
		t.Errorf("exit code %d: %s", code, &errs)
	}
}

// hung is a machine on which no driver call returns.
type hung struct {
	machine
	over chan struct{}
}

func (h hung) Scan() (gpu.Inventory, error) { <-h.over; return gpu.Inventory{}, nil }
func (h hung) Close()                       { <-h.over }

func TestMeasurePartly(t *testing.T) {
	t.Parallel()
	code, out, _ := run(newFake(t, "fail=lost", "fail.gpu=1", "fail.after=3"), twoGPUs())
	if code != 1 || !strings.Contains(out, fakecuda.UUID(1)+": partial: ") || !strings.Contains(out, "CUDA_ERROR_LAUNCH_FAILED") ||
		!strings.Contains(out, fakecuda.UUID(0)+"  NVIDIA H200  A  ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func TestMeasureRefuses(t *testing.T) {
	t.Parallel()
	busy := twoGPUs()
	busy.samples[fakecuda.UUID(1)] = gpu.Sample{MemoryUsedMiB: new(int64(50000))}
	computing := twoGPUs()
	computing.pids = map[string][]int{fakecuda.UUID(0): {os.Getpid()}}
	mig := machine{inv: gpu.Inventory{Devices: []gpu.Device{{ID: "MIG-1", MIG: gpu.MIG{Profile: "3g.71gb"}}}}}
	f := newFake(t)
	for _, tc := range []struct {
		name string
		m    machine
		args []string
		code int
		want string
	}{
		{"GPU in use", busy, nil, 1, "in use: " + fakecuda.UUID(1) + " (50000 MiB of its memory)"},
		{"GPU with a process", computing, nil, 1, fmt.Sprintf("in use: %s (process %d)", fakecuda.UUID(0), os.Getpid())},
		{"no NVML", machine{err: errors.New("library not found")}, nil, 1, "library not found"},
		{"MIG", mig, nil, 1, "no GPU to measure on this node (MIG instances are not measured)"},
		{"a MIG instance", mig, []string{"MIG-1"}, 1, `this node has no GPU "MIG-1"`},
		{"no such GPU", twoGPUs(), []string{"GPU-x"}, 1, `this node has no GPU "GPU-x" (its GPUs: ` + fakecuda.UUID(0)},
		{"flag", twoGPUs(), []string{"-colour"}, 2, "-colour"},
		{"limit", twoGPUs(), []string{"-limit=0s"}, 2, "-limit must be positive, and -warmup must not be negative"},
	} {
		code, _, errs := run(f, tc.m, tc.args...)
		if code != tc.code || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: exit code %d, %q, want %d, %q", tc.name, code, errs, tc.code, tc.want)
		}
	}
	if code, _, errs := run(f, busy, "-force", fakecuda.UUID(1)); code != 0 {
		t.Errorf("forced: exit code %d: %s", code, errs)
	}
	if code, out, _ := run(f, twoGPUs(), "-h"); code != 0 || out != Help {
		t.Errorf("help: exit code %d, %q", code, out)
	}
}

func TestParseReportErrors(t *testing.T) {
	for in, want := range map[string]string{
		"{":              "unexpected EOF",
		`{"format":"x"}`: `format is "x", want "nomad-pal/measurement/1"`,
		`{"format":"nomad-pal/measurement/1","results":[{"gpu":"g","apps":[{"app":"A","ms":-1}]}]}`: `result 1 (GPU "g"), application "A": time -1 is not`,
	} {
		if _, err := parseReport([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", in, err, want)
		}
	}
}

func TestBoard(t *testing.T) {
	var b strings.Builder
	board := board{w: &b, doing: map[string]string{}}
	for _, p := range []Progress{
		{GPU: "GPU-1", Doing: "warming up", Done: 30 * time.Second, Limit: 2 * time.Minute},
		{GPU: "GPU-2", Doing: "class A", Done: 60 * time.Second, Limit: 2 * time.Minute},
		{GPU: "GPU-1", Doing: "warming up", Done: 31 * time.Second, Limit: 2 * time.Minute},
		{GPU: "GPU-1", Doing: "class A", Done: 61 * time.Second, Limit: 2 * time.Minute},
	} {
		board.show(p)
	}
	want := "GPU-1: warming up (30s of at most 2m0s)\nGPU-2: class A (1m0s of at most 2m0s)\nGPU-1: class A (1m1s of at most 2m0s)\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// samples returns a report's times as input for calibration.
func samples(r Report) []profile.Sample {
	var out []profile.Sample
	for _, res := range r.Results {
		for _, a := range res.Apps {
			// CI is 1.96 standard errors of the median.
			out = append(out, profile.Sample{GPU: res.GPU, Model: res.Model, Key: res.Key, App: a.App, Time: a.Ms, Noise: a.CI / 1.96})
		}
	}
	return out
}

// parseReport parses the output of [Report.Encode].
func parseReport(data []byte) (Report, error) {
	var r Report
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&r); err != nil {
		return Report{}, fmt.Errorf("measurement report: %w", err)
	}
	if r.Format != Format {
		return Report{}, fmt.Errorf("measurement report: format is %q, want %q", r.Format, Format)
	}
	for i, res := range r.Results {
		for _, a := range res.Apps {
			if res.GPU == "" || !(a.Ms > 0) {
				return Report{}, fmt.Errorf("measurement report: result %d (GPU %q), application %q: time %v is not a positive number", i+1, res.GPU, a.App, a.Ms)
			}
		}
	}
	return r, nil
}
