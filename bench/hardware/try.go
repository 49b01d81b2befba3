// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package hardware

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/pal"
)

// each runs a session on each of these GPUs, all at once, as the plugin does. Each result goes to
// done when its session ends. progress can be nil.
func (r *run) each(ctx context.Context, ds []gpu.Device, plan func(gpu.Device) measure.Plan, progress func(measure.Progress), done func(i int, res measure.Result)) {
	var wg sync.WaitGroup
	for i, d := range ds {
		wg.Go(func() {
			done(i, r.runner.Session(ctx, measure.Target{Device: d, Driver: r.record.Driver, Beside: len(ds) - 1, Of: len(r.record.GPUs)}, plan(d), progress))
		})
	}
	wg.Wait()
}

// short returns a plan that measures one variant in a few seconds.
func (r *run) short(v variant, warmup time.Duration) measure.Plan {
	p := r.Pace.Session
	p.Classes, p.Avoid, p.Warmup, p.Limit = []pal.AppClass{v.class}, v.avoid, warmup, warmup+r.Pace.Kernel
	p.CI, p.MinWindows = 0.001, 10
	return p
}

// kernels measures every kernel once on every GPU: rate, power, clock, checksum and compile
// time. Repeating this step shows how well the results repeat.
func (r *run) kernels(ctx context.Context, k keep, n int) error {
	most := 0
	for _, d := range r.usable {
		most = max(most, len(variants(d)))
	}
	for i := range most {
		var ds []gpu.Device
		for _, d := range r.usable {
			if i < len(variants(d)) {
				ds = append(ds, d)
			}
		}
		plan := func(d gpu.Device) measure.Plan {
			v := variants(d)[i]
			if v.class != pal.ClassA {
				return r.short(v, 0)
			}
			return r.short(v, r.Pace.Warm)
		}
		r.each(ctx, ds, plan, nil, func(j int, res measure.Result) {
			if ctx.Err() != nil {
				return // the run was cut short, so its result does not count
			}
			d, kernel := ds[j], variants(ds[j])[i].kernel
			run := kernelRun(kernel, res)
			k(func(rec *Record) { rec.addRun(d, kernel, run) }, "%s on %s, run %d: %s", kernel, short(d.ID), n, run)
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// addRun adds a run of a kernel on a GPU.
func (rec *Record) addRun(d gpu.Device, kernel string, run KernelRun) {
	i := slices.IndexFunc(rec.Kernels, func(k KernelRuns) bool { return k.GPU == d.ID && k.Kernel == kernel })
	if i < 0 {
		i = len(rec.Kernels)
		rec.Kernels = append(rec.Kernels, KernelRuns{GPU: d.ID, Model: d.Model, Kernel: kernel})
	}
	rec.Kernels[i].Runs = append(rec.Kernels[i].Runs, run)
}

// String formats the run for the log.
func (run KernelRun) String() string {
	if run.Problem != "" {
		return run.Problem
	}
	return fmt.Sprintf("%.4g %s, %.0f %% of peak; limiting factor: %s", run.Rate, run.Unit, 100*run.Share, run.LimitedBy)
}

// kernelRun returns what the page shows about a session of one class. If the session used another
// kernel instead, the result has no figures.
func kernelRun(kernel string, res measure.Result) KernelRun {
	run := KernelRun{Problem: res.Problem, Warnings: res.Warnings, CompileSeconds: res.Compile[kernel]}
	if len(res.Apps) == 0 {
		return run
	}
	a := res.Apps[0]
	if a.Kernel != kernel {
		run.Problem = cmp.Or(run.Problem, fmt.Sprintf("%s ran in its place: %s", a.Kernel, strings.Join(res.Warnings, "; ")))
		return run
	}
	run.Ms, run.Rate, run.Unit, run.Share, run.LimitedBy, run.Sum = a.Ms, a.Rate, a.Unit, a.Share, a.LimitedBy, a.Sum
	run.ClockMHz = measure.Mean(a.Windows, func(w measure.Repetition) *float64 { return w.ClockMHz })
	run.PowerW = measure.Mean(a.Windows, func(w measure.Repetition) *float64 { return w.PowerW })
	run.TempC = measure.Mean(a.Windows, func(w measure.Repetition) *float64 { return w.TempC })
	return run
}

// session makes one whole measurement, as the plugin does, and records each class as soon as the
// class is measured.
func (r *run) session(ctx context.Context, k keep) error {
	at := map[string]int{}
	rows := make([]measure.Result, len(r.usable))
	for i, d := range r.usable {
		at[d.ID] = i
		rows[i] = measure.Result{GPU: d.ID, Model: d.Model, Apps: []measure.App{}, Partial: true, Problem: "the run ended before this GPU's measurement was complete"}
	}
	k(func(rec *Record) { rec.Session = slices.Clone(rows) }, "")
	var mu sync.Mutex
	progress := func(now measure.Progress) {
		mu.Lock()
		defer mu.Unlock()
		row := &rows[at[now.GPU]]
		if len(now.Apps) <= len(row.Apps) {
			return
		}
		row.Apps = now.Apps
		a := now.Apps[len(now.Apps)-1]
		k(func(rec *Record) { rec.Session[at[now.GPU]] = *row }, "class %s on %s: %.2f ms (kernel %s); limiting factor: %s", a.App, short(now.GPU), a.Ms, a.Kernel, a.LimitedBy)
	}
	r.each(ctx, r.usable, func(gpu.Device) measure.Plan { return r.Pace.Session }, progress, func(i int, res measure.Result) {
		k(func(rec *Record) { rec.Session[i] = res }, "")
	})
	return nil
}

// soakWindow is the length of a point of the soak curve, in seconds.
const soakWindow = 5.0

// soak runs class A at full power for as long as time allows, at most five minutes.
func (r *run) soak(ctx context.Context, k keep) error {
	deadline, _ := ctx.Deadline()
	p := r.Pace.Session
	p.Classes, p.Warmup, p.MinWindows = []pal.AppClass{pal.ClassA}, 0, 1<<30
	p.Limit = min(r.Pace.Soak, time.Until(deadline)-childStart)
	r.each(ctx, r.usable, func(gpu.Device) measure.Plan { return p }, nil, func(_ int, res measure.Result) {
		s := soakOf(res)
		k(func(rec *Record) { rec.Soak = append(rec.Soak, s) }, "soak on %s: %d points", short(res.GPU), len(s.Points))
	})
	return nil
}

// soakOf combines a session's windows into points that span some seconds each.
func soakOf(res measure.Result) Soak {
	s := Soak{GPU: res.GPU, Problem: res.Problem, Points: []SoakPoint{}}
	if len(res.Apps) == 0 {
		return s
	}
	s.Kernel = res.Apps[0].Kernel
	at, from, windows := 0.0, 0, res.Apps[0].Windows
	for i, w := range windows {
		at += w.Ms * float64(w.Units) / 1000
		if at < soakWindow*float64(len(s.Points)+1) {
			continue
		}
		these := windows[from : i+1]
		from = i + 1
		s.Points = append(s.Points, SoakPoint{Seconds: at, Ms: *measure.Mean(these, func(w measure.Repetition) *float64 { return &w.Ms }),
			ClockMHz: measure.Mean(these, func(w measure.Repetition) *float64 { return w.ClockMHz }),
			PowerW:   measure.Mean(these, func(w measure.Repetition) *float64 { return w.PowerW }),
			TempC:    measure.Mean(these, func(w measure.Repetition) *float64 { return w.TempC })})
	}
	return s
}

// job runs a program that computes on a GPU for Pace.Job. The program is a session of class B that
// never reaches its precision.
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

// beside measures while a job runs, to show whether the idle check detects the job, how much the
// job slows down, and how fast a killed measurement ends.
func (r *run) beside(ctx context.Context, k keep) error {
	d, others := r.usable[0], r.usable[1:]
	b := Beside{GPU: d.ID, Watched: r.runner.Sample != nil}
	keep := func() {
		if ctx.Err() == nil {
			now := b
			k(func(rec *Record) { rec.Beside = &now }, "")
		}
	}
	alone := r.job(ctx, d, nil)
	if len(alone.Apps) == 0 {
		keep()
		return fmt.Errorf("the job alone: %s", alone.Problem)
	}
	b.AloneMs = alone.Apps[0].Ms
	full := func(gpu.Device) measure.Plan {
		p := r.short(variant{class: pal.ClassA}, 0)
		p.Limit = r.Pace.Job
		return p
	}
	with := func(ds []gpu.Device) float64 {
		var wg sync.WaitGroup
		res := r.job(ctx, d, func() {
			b.Seen = r.runner.InUse(r.record.GPUs, []string{d.ID})[d.ID]
			wg.Go(func() { r.each(ctx, ds, full, nil, func(int, measure.Result) {}) })
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
	keep()
	b.AbortSeconds = r.abort(ctx, d)
	if r.runner.Processes != nil {
		if pids := r.runner.Processes([]string{d.ID})[d.ID]; len(pids) > 0 {
			b.After = fmt.Sprintf("process %d", pids[0])
		}
	}
	keep()
	return ctx.Err()
}

// abort returns how long a measurement takes to end when it is cut short, as when a task arrives.
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

// faults causes faults that harm no other process.
func (r *run) faults(ctx context.Context, k keep) error {
	d := r.usable[0]
	keep := func(f FaultTried) {
		if ctx.Err() == nil {
			k(func(rec *Record) { rec.Faults = append(rec.Faults, f) }, "fault: %s: %s", f.Name, f.Said)
		}
	}
	quick := r.short(variant{class: pal.ClassC}, 0)
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
	keep(FaultTried{Name: "a GPU that does not exist", Said: short(r.runner, nobody), Want: "no GPU"})
	keep(FaultTried{Name: "no driver library", Said: short(without, d), Want: "is the NVIDIA driver installed?"})
	for _, f := range []struct {
		name, want, fault string
	}{
		{"a kernel that does not compile", "CUDA_ERROR_INVALID_PTX", faultPTXBroken},
		{"more memory than there is", "CUDA_ERROR_OUT_OF_MEMORY", faultMemory},
		{"a write to an invalid address (an Xid)", "CUDA_ERROR_ILLEGAL_ADDRESS", faultAddress},
	} {
		keep(r.fault(ctx, d, f.fault, f.name, f.want))
	}
	keep(FaultTried{Name: "measuring after the faults", Said: short(r.runner, d), Want: "measured"})
	return ctx.Err()
}

// fault causes one fault. If the driver reports the fault as an event, fault waits for the event.
func (r *run) fault(ctx context.Context, d gpu.Device, f, name, want string) FaultTried {
	out := FaultTried{Name: name, Want: want}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type arrival struct {
		at  time.Time
		xid int
	}
	arrivals := make(chan arrival, 16)
	if f == faultAddress && r.runner.Sample != nil {
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
	begun, said, err := r.causeFault(ctx, d.ID, f)
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
