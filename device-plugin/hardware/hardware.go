// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package hardware

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/device-plugin/statedir"
)

// Backend is NVML.
type Backend interface {
	measure.Backend
	Events(ctx context.Context, out chan<- gpu.Event)
}

// Options of a run.
type Options struct {
	Self    string   // this binary, for its own subcommands
	Child   []string // the command that runs measure.ChildMain
	Version string
	NVML    string // libraries
	CUDA    string
	Out     string // the files' name, without extension
	Runs    int    // of each kernel
	Faults  bool   // also cause faults, one of which the kernel's log shows as an Xid
	Pace    Pace
	Open    func(library string) Backend
	Say     io.Writer // progress
}

// Pace is how long things take.
type Pace struct {
	First, Next time.Duration // warm-up of a kernel's first run, and of those that follow
	Kernel      time.Duration // a run of a kernel after that, at most
	Job         time.Duration // the job that runs beside measurements
	Event       time.Duration // to wait for an event
	Quick       bool          // too short for figures
	Session     measure.Plan  // the whole measurement
}

// DefaultPace takes about a quarter of an hour.
func DefaultPace() Pace {
	return Pace{First: 20 * time.Second, Next: 2 * time.Second, Kernel: 6 * time.Second, Job: 10 * time.Second,
		Event: 10 * time.Second, Session: measure.DefaultPlan()}
}

// QuickPace shows that everything runs, in a minute or two. Its figures are
// worth little.
func QuickPace() Pace {
	p := Pace{First: time.Second, Next: 200 * time.Millisecond, Kernel: 2 * time.Second, Job: 2 * time.Second,
		Event: 5 * time.Second, Quick: true, Session: measure.DefaultPlan()}
	p.Session.Limit, p.Session.Warmup = 10*time.Second, 2*time.Second
	return p
}

// run is a run in progress.
type run struct {
	Options
	backend Backend
	runner  measure.Runner
	record  Record
	usable  []gpu.Device // idle ones that can be measured
}

// found is what a step adds to the record.
type found func(*Record)

// Run takes all steps and writes the record as JSON and as a page, whole after
// each step. It ends early with ctx.
func (o Options) Run(ctx context.Context) (Record, error) {
	r := &run{Options: o, backend: o.Open(o.NVML)}
	r.runner = measure.Runner{Self: o.Child, Library: o.CUDA}
	r.record = Record{Format: Format, Version: o.Version, Quick: o.Pace.Quick, Started: time.Now().UTC().Truncate(time.Second), GPUs: []gpu.Device{},
		Kernels: []KernelRuns{}, System: System{firstLine("/proc/version"), firstLine("/proc/driver/nvidia/version"), runtime.NumCPU()}}
	r.record.Node, _ = os.Hostname() // a name is a help, not a need
	begin := time.Now()
	for _, s := range r.steps() {
		if ctx.Err() != nil {
			break
		}
		r.step(ctx, s)
		r.record.Seconds = time.Since(begin).Seconds()
		r.record.Claims = Claims(r.record)
		if err := r.write(); err != nil {
			return r.record, err
		}
	}
	return r.record, ctx.Err()
}

// step is one of them: do must return within its limit.
type step struct {
	name  string
	limit time.Duration
	do    func(context.Context) (found, error)
}

func (r *run) steps() []step {
	p := r.Pace
	kernels := time.Duration(r.Runs) * 6 * (p.First + p.Kernel + time.Minute)
	all := []step{
		{"doctor", time.Minute, r.own("doctor", func(rec *Record, out json.RawMessage) { rec.Doctor = out })},
		{"fingerprint", time.Minute, r.own("fingerprint", func(rec *Record, out json.RawMessage) { rec.Fingerprint = out })},
		{"scan", 2 * time.Minute, r.scan},
		{"nvidia-smi", time.Minute, r.smi},
		{"kernels", kernels, r.kernels},
		{"measurement", 2 * (p.Session.Limit + 4*time.Minute), r.session},
		{"measuring beside a job", 6 * (p.Job + 2*time.Minute), r.beside},
	}
	if r.Faults {
		all = append(all, step{"faults", 10 * time.Minute, r.faults})
	}
	return all
}

// step takes one. What hangs is left behind, and does not reach the record.
func (r *run) step(ctx context.Context, s step) {
	fmt.Fprintf(r.Say, "%s …\n", s.name)
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	type outcome struct {
		found
		error
	}
	done := make(chan outcome, 1)
	begin := time.Now()
	go func() {
		f, err := s.do(ctx)
		done <- outcome{f, err}
	}()
	var o outcome
	select {
	case o = <-done:
	case <-ctx.Done():
		select {
		case o = <-done:
		case <-time.After(5 * time.Second): // to notice
			o.error = fmt.Errorf("no answer: %w", ctx.Err())
		}
	}
	if o.found != nil {
		o.found(&r.record)
	}
	entry := Step{Name: s.name, Seconds: time.Since(begin).Seconds()}
	if o.error != nil {
		entry.Problem = o.error.Error()
		fmt.Fprintf(r.Say, "  %v\n", o.error)
	}
	r.record.Steps = append(r.record.Steps, entry)
}

// write replaces both files.
func (r *run) write() error {
	data, err := json.MarshalIndent(r.record, "", " ")
	if err != nil {
		return fmt.Errorf("encoding the record: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(r.Out), 0o755); err != nil {
		return err
	}
	if err := statedir.ReplaceFile(r.Out+".json", append(data, '\n')); err != nil {
		return err
	}
	return statedir.ReplaceFile(r.Out+".md", []byte(Page(r.record)))
}

// own runs a subcommand of this binary and keeps its JSON.
func (r *run) own(name string, keep func(*Record, json.RawMessage)) func(context.Context) (found, error) {
	return func(ctx context.Context) (found, error) {
		out, err := output(ctx, r.Self, name, "-json", "-nvml="+r.NVML)
		if !json.Valid(out) || len(bytes.TrimSpace(out)) == 0 {
			return nil, fmt.Errorf("%s: no answer in JSON: %w", name, err)
		}
		return func(rec *Record) { keep(rec, out) }, nil // what it exits with is in its answer
	}
}

// output is a program's standard output, and with an error what it said.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
	}
	return out, err
}

// scan lists the GPUs and which of them can be measured.
func (r *run) scan(ctx context.Context) (found, error) {
	inv, err := r.backend.Scan()
	listed, cudaErr := r.runner.List(ctx)
	if err == nil {
		r.runner.Sample, r.runner.Processes = r.backend.Sample, r.backend.Processes
	} else if inv.Devices = listed; len(listed) == 0 {
		return nil, err
	}
	var ids []string
	for _, d := range inv.Devices {
		ids = append(ids, d.ID)
	}
	idle := map[string]gpu.Sample{}
	if r.runner.Sample != nil {
		idle = r.runner.Sample(ids)
	}
	out := r.runner.InUse(inv.Devices, ids)
	for _, d := range inv.Devices {
		switch unable := measure.Supported(d); {
		case unable != nil:
			out[d.ID] = unable.Error()
		case d.MIGProfile != "":
			out[d.ID] = "a MIG instance is not measured"
		}
		if out[d.ID] == "" && cudaErr == nil {
			r.usable = append(r.usable, d)
		}
	}
	return func(rec *Record) {
		rec.GPUs, rec.Driver, rec.Idle, rec.InUse = inv.Devices, inv.DriverVersion, idle, out
	}, errors.Join(err, cudaErr) // without CUDA nothing is measured, and it is said once
}

// smi asks nvidia-smi, where there is one.
func (r *run) smi(ctx context.Context) (found, error) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return nil, nil
	}
	out, err := output(ctx, path, smiQuery()...)
	if err != nil {
		return nil, fmt.Errorf("asking nvidia-smi: %w", err)
	}
	s, err := compareSMI(string(out), r.record.GPUs, r.record.Driver)
	return func(rec *Record) { rec.SMI = s }, err
}

// errNoGPU: there is nothing to measure.
var errNoGPU = errors.New("no idle GPU that can be measured")

func firstLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}
