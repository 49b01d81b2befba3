// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package hardware

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/pal"
)

// each runs a session on all usable GPUs at once, as the plugin does.
func (r *run) each(ctx context.Context, ds []gpu.Device, plan func(gpu.Device) measure.Plan) []measure.Result {
	out := make([]measure.Result, len(ds))
	var wg sync.WaitGroup
	for i, d := range ds {
		wg.Go(func() {
			out[i] = r.runner.Session(ctx, measure.Target{Device: d, Driver: r.record.Driver, Solo: len(ds) < len(r.record.GPUs)}, plan(d), nil)
		})
	}
	wg.Wait()
	return out
}

// short is a plan of a few seconds.
func (r *run) short(v measure.Variant, warmup time.Duration) measure.Plan {
	p := r.Pace.Session
	p.Classes, p.Avoid, p.Warmup, p.Limit = v.Plan.Classes, v.Plan.Avoid, warmup, warmup+r.Pace.Kernel
	p.CI, p.MinWindows = 0.001, 10
	return p
}

// kernels measures every kernel on every GPU again and again: rate, power,
// clock, checksum, compile time, and how well they repeat.
func (r *run) kernels(ctx context.Context) (found, error) {
	if len(r.usable) == 0 {
		return nil, errNoGPU
	}
	most := 0
	for _, d := range r.usable {
		most = max(most, len(measure.Variants(d)))
	}
	var all []KernelRuns
	keep := func(rec *Record) { rec.Kernels = all }
	for i := range most {
		var ds []gpu.Device
		var rows []KernelRuns
		for _, d := range r.usable {
			if vs := measure.Variants(d); i < len(vs) {
				ds = append(ds, d)
				rows = append(rows, KernelRuns{GPU: d.ID, Model: d.Model, Kernel: vs[i].Kernel})
			}
		}
		for n := range r.Runs {
			fmt.Fprintf(r.Say, "  %s, run %d of %d\n", rows[0].Kernel, n+1, r.Runs)
			results := r.each(ctx, ds, func(d gpu.Device) measure.Plan {
				v := measure.Variants(d)[i]
				switch {
				case v.Plan.Classes[0] != pal.ClassA:
					return r.short(v, 0)
				case n == 0:
					return r.short(v, r.Pace.First)
				}
				return r.short(v, r.Pace.Next)
			})
			if ctx.Err() != nil {
				return keep, ctx.Err()
			}
			for j, res := range results {
				rows[j].Runs = append(rows[j].Runs, kernelRun(rows[j].Kernel, res))
			}
		}
		all = append(all, rows...)
	}
	return keep, nil
}

// kernelRun takes what a page needs from a session of one class.
func kernelRun(kernel string, res measure.Result) KernelRun {
	run := KernelRun{Problem: res.Problem, Warnings: res.Warnings, CompileSeconds: res.Compile[kernel]}
	if len(res.Apps) == 0 {
		if run.Problem == "" {
			run.Problem = "no class could be measured"
		}
		return run
	}
	a := res.Apps[0]
	run.Ms, run.Rate, run.Unit, run.Share, run.LimitedBy, run.Sum = a.Ms, a.Rate, a.Unit, a.Share, a.LimitedBy, a.Sum
	run.ClockMHz = measure.Mean(a.Windows, func(w measure.Window) *float64 { return w.ClockMHz })
	run.PowerW = measure.Mean(a.Windows, func(w measure.Window) *float64 { return w.PowerW })
	run.TempC = measure.Mean(a.Windows, func(w measure.Window) *float64 { return w.TempC })
	return run
}

// session is one whole measurement, as the plugin makes them.
func (r *run) session(ctx context.Context) (found, error) {
	if len(r.usable) == 0 {
		return nil, errNoGPU
	}
	results := r.each(ctx, r.usable, func(gpu.Device) measure.Plan { return r.Pace.Session })
	return func(rec *Record) { rec.Session = results }, nil
}

// job is a program that computes on a GPU for a while: a session of class B that
// is never content.
func (r *run) job(ctx context.Context, d gpu.Device, started func()) measure.Result {
	p := r.Pace.Session
	p.Classes, p.Warmup, p.Limit, p.MinWindows = []pal.AppClass{pal.ClassB}, 0, r.Pace.Job, 1<<30
	return r.runner.Session(ctx, measure.Target{Device: d, Driver: r.record.Driver}, p, func(now measure.Progress) {
		if started != nil && now.Doing == "class B" {
			started()
			started = nil
		}
	})
}

// beside measures beside a running job: whether the job is seen, what it costs
// it, and how fast a measurement is gone.
func (r *run) beside(ctx context.Context) (found, error) {
	if len(r.usable) == 0 {
		return nil, errNoGPU
	}
	d, others := r.usable[0], r.usable[1:]
	b := &Beside{GPU: d.ID, Watched: r.runner.Sample != nil}
	keep := func(rec *Record) { rec.Beside = b }
	alone := r.job(ctx, d, nil)
	if len(alone.Apps) == 0 {
		return keep, fmt.Errorf("the job alone: %s", alone.Problem)
	}
	b.AloneMs = alone.Apps[0].Ms
	full := func(gpu.Device) measure.Plan {
		p := r.short(measure.Variant{Plan: measure.Plan{Classes: []pal.AppClass{pal.ClassA}}}, 0)
		p.Limit = r.Pace.Job
		return p
	}
	with := func(ds []gpu.Device) float64 {
		var wg sync.WaitGroup
		res := r.job(ctx, d, func() {
			b.Seen = r.runner.InUse(r.record.GPUs, []string{d.ID})[d.ID]
			wg.Go(func() { r.each(ctx, ds, full) })
		})
		wg.Wait()
		if len(res.Apps) == 0 {
			return 0
		}
		return res.Apps[0].Ms
	}
	if len(others) > 0 {
		b.NeighboursMs = with(others)
	}
	b.ForcedMs = with([]gpu.Device{d})
	b.AbortSeconds = r.abort(ctx, d)
	if r.runner.Processes != nil {
		if pids := r.runner.Processes([]string{d.ID})[d.ID]; len(pids) > 0 {
			b.After = fmt.Sprintf("process %d", pids[0])
		}
	}
	return keep, ctx.Err()
}

// abort is how long a measurement takes to be gone, as when a task comes.
func (r *run) abort(ctx context.Context, d gpu.Device) float64 {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var killed time.Time
	r.runner.Session(ctx, measure.Target{Device: d, Driver: r.record.Driver}, r.Pace.Session, func(now measure.Progress) {
		if now.Doing == "warming up" && killed.IsZero() {
			killed = time.Now()
			cancel()
		}
	})
	if killed.IsZero() {
		return 0
	}
	return time.Since(killed).Seconds()
}

// faults causes what can be caused without harm to others.
func (r *run) faults(ctx context.Context) (found, error) {
	if len(r.usable) == 0 {
		return nil, errNoGPU
	}
	d := r.usable[0]
	var all []FaultTried
	keep := func(rec *Record) { rec.Faults = all }
	quick := r.short(measure.Variant{Plan: measure.Plan{Classes: []pal.AppClass{pal.ClassC}}}, 0)
	short := func(runner measure.Runner, d gpu.Device) string {
		res := runner.Session(ctx, measure.Target{Device: d, Driver: r.record.Driver}, quick, nil)
		if res.Partial {
			return res.Problem
		}
		return "measured"
	}
	nobody, without := d, r.runner
	nobody.ID = "GPU-00000000-dead-beef-0000-000000000000"
	without.Library = "libnone.so.1"
	all = append(all, FaultTried{Name: "a GPU that does not exist", Said: short(r.runner, nobody), Want: "no GPU"},
		FaultTried{Name: "no driver library", Said: short(without, d), Want: "is the NVIDIA driver installed?"})
	for _, f := range []struct {
		name, want string
		fault      measure.Fault
	}{
		{"a kernel that does not compile", "CUDA_ERROR_INVALID_PTX", measure.FaultPTX},
		{"more memory than there is", "CUDA_ERROR_OUT_OF_MEMORY", measure.FaultMemory},
		{"a write to nowhere (an Xid)", "CUDA_ERROR_ILLEGAL_ADDRESS", measure.FaultAddress},
	} {
		all = append(all, r.fault(ctx, d, f.fault, f.name, f.want))
	}
	all = append(all, FaultTried{Name: "measuring after the faults", Said: short(r.runner, d), Want: "measured"})
	return keep, ctx.Err()
}

// fault causes one and, where the driver reports it, waits for the event.
func (r *run) fault(ctx context.Context, d gpu.Device, f measure.Fault, name, want string) FaultTried {
	out := FaultTried{Name: name, Want: want}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type arrival struct {
		at  time.Time
		xid int
	}
	arrivals := make(chan arrival, 16)
	if f == measure.FaultAddress && r.runner.Sample != nil {
		out.WaitedFor = true
		events := make(chan gpu.Event)
		go r.backend.Events(ctx, events)
		go func() {
			for {
				select {
				case e := <-events:
					if e.GPU == d.ID && e.Xid != 0 && len(arrivals) < cap(arrivals) {
						arrivals <- arrival{time.Now(), e.Xid}
					}
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	begun, said, err := r.runner.Fault(ctx, d, f, r.Pace.Session)
	out.Said = said
	if err != nil {
		out.Said = err.Error()
	}
	if !out.WaitedFor || begun.IsZero() {
		return out
	}
	select {
	case a := <-arrivals:
		took := a.at.Sub(begun).Seconds()
		out.EventSeconds, out.Xid = &took, a.xid
	case <-time.After(r.Pace.Event):
	case <-ctx.Done():
	}
	return out
}
