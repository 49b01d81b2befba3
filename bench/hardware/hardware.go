// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package hardware

import (
	"bytes"
	"cmp"
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
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/internal/wholefile"
)

// Backend is NVML; tests replace it.
type Backend interface {
	measure.Backend
	Events(ctx context.Context, out chan<- gpu.Event)
}

// Options configure a run.
type Options struct {
	Self    string // path of this program, which also runs FaultMain
	Plugin  string // path of the plugin
	Version string // the plugin's version
	NVML    string // library names or paths
	CUDA    string
	Out     string        // base name of the files; Run adds a number if it is taken
	Budget  time.Duration // total time of the run
	Runs    int           // runs of each kernel, at most
	Faults  bool          // also cause faults; one of them is an Xid in the kernel's log
	Force   bool          // also measure GPUs that are in use
	Pace    Pace
	Open    func(library string) Backend
	Say     io.Writer // progress; it is kept in a file as well
}

type run struct {
	Options
	backend Backend
	runner  measure.Runner
	begun   time.Time
	usable  []gpu.Device // GPUs that can be measured

	mu     sync.Mutex // guards the fields below, because a step that hangs keeps running
	record Record
	failed error // first error of writing the files
}

// keep adds a result to the record, writes the files, and then reports the result in one line. In
// this order, no reported result is lost if the process is killed. keep drops the results of
// abandoned steps.
type keep func(add func(*Record), format string, args ...any)

// Run executes the steps that fit into the budget. Run writes each result at once, as JSON and as a
// page, and logs its progress. If ctx ends, Run returns the record so far, without an error. If the
// name Out is taken, Run appends a number.
func (o *Options) Run(ctx context.Context) (Record, error) {
	log, err := o.take()
	if err != nil {
		return Record{}, fmt.Errorf("%w (-out=DIR/NAME writes elsewhere)", err)
	}
	defer log.Close()
	r := o.begin()
	r.Say = io.MultiWriter(log, o.Say) // the file first, because the terminal may be closed
	WritePlan(r.Say, o.Budget, r.record.Plan)
	limited, cancel := context.WithTimeout(ctx, o.Budget)
	defer cancel()
	for _, s := range r.steps() {
		r.step(limited, s)
		if ctx.Err() != nil || r.failed != nil {
			break
		}
	}
	if ctx.Err() != nil {
		r.add(func(rec *Record) { rec.Interrupted = true }, "interrupted: the results so far are in the files")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record, r.failed
}

// take sets Out to an unused name, and creates the log.
func (o *Options) take() (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(o.Out), 0o755); err != nil {
		return nil, err
	}
	for name, n := o.Out, 2; ; n++ {
		log, err := os.OpenFile(o.Out+".log", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if !errors.Is(err, os.ErrExist) {
			return log, err
		}
		o.Out = fmt.Sprintf("%s-%d", name, n)
	}
}

// begin returns a run with an empty record.
func (o *Options) begin() *run {
	r := &run{Options: *o, backend: o.Open(o.NVML), begun: time.Now()}
	r.runner = measure.Runner{Self: []string{o.Plugin, measure.ChildCommand}, Library: o.CUDA}
	r.record = Record{Format: Format, Version: o.Version, Quick: o.Pace.Quick, Forced: o.Force, Started: r.begun.UTC().Truncate(time.Second),
		BudgetSeconds: o.Budget.Seconds(), Plan: o.Plan(), GPUs: []gpu.Device{}, Kernels: []KernelRuns{},
		System: System{firstLine("/proc/version"), firstLine("/proc/driver/nvidia/version"), runtime.NumCPU()}}
	r.record.Node, _ = os.Hostname() // the name is useful but not required
	return r
}

// add changes the record, writes it, and then reports.
func (r *run) add(change func(*Record), format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(change, format, args...)
}

func (r *run) addLocked(change func(*Record), format string, args ...any) {
	change(&r.record)
	r.record.Seconds = time.Since(r.begun).Seconds()
	r.record.Claims = Claims(r.record)
	if err := r.write(); err != nil {
		r.failed = fmt.Errorf("%w (-out=DIR/NAME writes elsewhere)", err)
		return
	}
	if format != "" {
		fmt.Fprintf(r.Say, "%7.1f s  "+format+"\n", append([]any{r.record.Seconds}, args...)...)
	}
}

// step executes a step if the step fits into the rest of the budget. A step that hangs is
// abandoned, and its later results are dropped.
func (r *run) step(ctx context.Context, s step) {
	entry := Step{Name: s.name}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(r.Budget)
	}
	takes, leftOut := s.fit(time.Until(deadline))
	say := "%s: left out: %s"
	if s.gpu && len(r.usable) == 0 {
		leftOut, say = errNoGPU.Error(), "" // the scan reported it already
	}
	if leftOut != "" {
		entry.LeftOut = leftOut
		r.add(func(rec *Record) { rec.Steps = append(rec.Steps, entry) }, say, s.name, leftOut)
		return
	}
	begin := time.Now()
	switch err := r.within(ctx, s, 2*takes+30*time.Second); {
	case err != nil && err == ctx.Err(): // the whole run ended: not the step's fault
		entry.LeftOut = "cut short by the end of the run"
	case err != nil:
		entry.Problem = err.Error()
	}
	entry.Seconds = time.Since(begin).Seconds()
	r.add(func(rec *Record) { rec.Steps = append(rec.Steps, entry) }, "%s: %s", s.name, cmp.Or(entry.Problem, entry.LeftOut, "done"))
}

// within runs a step and abandons it after the limit.
func (r *run) within(ctx context.Context, s step, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	left := false // guarded by mu
	k := func(change func(*Record), format string, args ...any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !left {
			r.addLocked(change, format, args...)
		}
	}
	done := make(chan error, 1)
	go func() { done <- s.do(ctx, k) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(5 * time.Second): // time for the step to notice that it was cancelled
		r.mu.Lock()
		defer r.mu.Unlock()
		left = true
		return fmt.Errorf("no answer: %w", ctx.Err())
	}
}

// write replaces the JSON file and the page.
func (r *run) write() error {
	data, err := json.MarshalIndent(r.record, "", " ")
	if err != nil {
		return fmt.Errorf("encoding the record: %w", err)
	}
	if err := wholefile.Write(r.Out+".json", append(data, '\n')); err != nil {
		return fmt.Errorf("writing %q: %w", r.Out+".json", err)
	}
	if err := wholefile.Write(r.Out+".md", []byte(Page(r.record))); err != nil {
		return fmt.Errorf("writing %q: %w", r.Out+".md", err)
	}
	return nil
}

// command returns a step that runs a command of the plugin and keeps its JSON.
func (r *run) command(name string, into func(*Record, []byte), more ...string) func(context.Context, keep) error {
	return func(ctx context.Context, k keep) error {
		out, err := output(ctx, r.Plugin, append([]string{name, "-json", "-nvml=" + r.NVML}, more...)...)
		if !json.Valid(out) || len(bytes.TrimSpace(out)) == 0 {
			return errors.Join(fmt.Errorf("the output is not JSON: %.80q", out), err)
		}
		k(func(rec *Record) { into(rec, out) }, "") // the exit code adds nothing to the JSON
		return nil
	}
}

// output returns a program's standard output; the error includes the program's standard error.
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

// scan lists the GPUs, and finds the GPUs that can be measured.
func (r *run) scan(ctx context.Context, k keep) error {
	inv, err := r.backend.Scan()
	runner := r.runner
	listed, cudaErr := runner.List(ctx)
	if err == nil {
		runner.Sample, runner.Processes = r.backend.Sample, r.backend.Processes
	} else if inv.Devices = listed; len(listed) == 0 {
		return errors.Join(err, cudaErr)
	}
	var ids []string
	for _, d := range inv.Devices {
		ids = append(ids, d.ID)
	}
	idle := map[string]gpu.Sample{}
	if runner.Sample != nil {
		idle = runner.Sample(ids)
	}
	out := runner.InUse(inv.Devices, ids)
	var usable []gpu.Device
	for _, d := range inv.Devices {
		able := out[d.ID] == "" || r.Force
		switch unable := measure.Supported(d); {
		case unable != nil:
			out[d.ID], able = unable.Error(), false
		case d.MIG.Profile != "":
			out[d.ID], able = "a MIG instance is not measured", false
		}
		if able && cudaErr == nil {
			usable = append(usable, d)
		}
	}
	k(func(rec *Record) {
		r.runner, r.usable = runner, usable
		rec.GPUs, rec.Driver, rec.Idle, rec.InUse = inv.Devices, inv.DriverVersion, idle, out
	}, "%d GPUs, driver %s, %d to measure", len(inv.Devices), cmp.Or(inv.DriverVersion, "-"), len(usable))
	if len(usable) == 0 && cudaErr == nil {
		cudaErr = noneUsable(inv.Devices, out)
	}
	return errors.Join(err, cudaErr) // without CUDA nothing is measured; report that once
}

// noneUsable returns an error with the reason for each GPU.
func noneUsable(all []gpu.Device, why map[string]string) error {
	var each []string
	for _, d := range all {
		each = append(each, short(d.ID)+": "+why[d.ID])
	}
	return fmt.Errorf("%w (%s); -force measures GPUs that are in use, too", errNoGPU, strings.Join(each, "; "))
}

// smi compares nvidia-smi with the scan, if nvidia-smi is installed.
func (r *run) smi(ctx context.Context, k keep) error {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return nil
	}
	out, err := output(ctx, path, smiQuery()...)
	if err != nil {
		return fmt.Errorf("asking nvidia-smi: %w", err)
	}
	s, err := compareSMI(string(out), r.record.GPUs, r.record.Driver)
	k(func(rec *Record) { rec.SMI = s }, "")
	return err
}

// errNoGPU means that there is nothing to measure.
var errNoGPU = errors.New("no GPU that can be measured")

// firstLine returns the first line of a file; "" if it cannot be read.
func firstLine(path string) string {
	data, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}
