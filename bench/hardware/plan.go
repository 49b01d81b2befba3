// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package hardware

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/pal"
)

// Pace is how long the parts of a run take.
type Pace struct {
	Warm    time.Duration // warm-up before a run of a compute kernel
	Kernel  time.Duration // longest run of a kernel after the warm-up
	Job     time.Duration // the job that runs beside measurements
	Event   time.Duration // longest wait for an event
	Soak    time.Duration // the first minutes at full power
	Quick   bool          // too short for reliable figures
	Session measure.Plan  // plan of the whole measurement
}

// quickBelow is the budget below which the checks are too short for reliable figures.
const quickBelow = 5 * time.Minute

// PaceFor returns the pace for a budget.
func PaceFor(budget time.Duration) Pace {
	p := Pace{Warm: 2 * time.Second, Kernel: 6 * time.Second, Job: 10 * time.Second, Event: 10 * time.Second,
		Soak: 5 * time.Minute, Session: measure.DefaultPlan()}
	// The session is shorter than the plugin's, because only the clock has to settle: the soak
	// shows how hot the GPU gets.
	p.Session.Limit, p.Session.Warmup, p.Session.Heat = 2*time.Minute, 45*time.Second, 0
	if budget < quickBelow {
		p.Warm, p.Kernel, p.Job, p.Event, p.Quick = 200*time.Millisecond, 2*time.Second, 2*time.Second, 5*time.Second, true
		p.Session.Limit, p.Session.Warmup = 10*time.Second, 2*time.Second
	}
	return p
}

// Approximate overhead of the steps, estimated without a GPU.
const (
	childStart     = 3 * time.Second // start of a measuring process with its CUDA context
	plannedKernels = 5               // kernels on Hopper; 3 of them are compute kernels
	plannedCompute = 3
	plannedFaults  = 6
	leastSoak      = time.Minute
	firstRuns      = 3 // runs of each kernel before less important steps, because a spread needs three runs
)

// step is one thing to try.
type step struct {
	name  string
	takes time.Duration // approximate time
	least time.Duration // the shortest time in which the step is useful, if less than takes
	gpu   bool          // it needs a measurable GPU
	do    func(context.Context, keep) error
}

// steps returns all steps, the most important first.
func (r *run) steps() []step {
	p := r.Pace
	all := []step{
		{name: "doctor", takes: 10 * time.Second, least: time.Second, do: r.command("doctor", func(rec *Record, out []byte) { rec.Doctor = out }, "-cuda="+r.CUDA)},
		{name: "fingerprint", takes: 5 * time.Second, least: time.Second, do: r.command("fingerprint", func(rec *Record, out []byte) { rec.Fingerprint = out })},
		{name: "scan", takes: 5 * time.Second, least: time.Second, do: r.scan},
		{name: "nvidia-smi", takes: 2 * time.Second, least: time.Second, do: r.smi},
		{name: "class rates", takes: p.Session.Limit + 10*time.Second, gpu: true, do: r.session},
	}
	first := min(r.Runs, firstRuns)
	for n := range first {
		all = append(all, r.kernelStep(n+1))
	}
	all = append(all, step{name: "measuring beside a job", takes: 3*(p.Job+childStart) + 10*time.Second, gpu: true, do: r.beside})
	if r.Faults {
		all = append(all, step{name: "faults", takes: plannedFaults * 5 * time.Second, gpu: true, do: r.faults})
	}
	all = append(all, step{name: "soak", takes: p.Soak + childStart, least: min(p.Soak, leastSoak) + childStart, gpu: true, do: r.soak})
	for n := first; n < r.Runs; n++ {
		all = append(all, r.kernelStep(n+1))
	}
	return all
}

// kernelStep returns the step that runs every kernel once.
func (r *run) kernelStep(n int) step {
	p := r.Pace
	return step{name: fmt.Sprintf("kernels, run %d of %d", n, r.Runs), takes: plannedKernels*(p.Kernel+childStart) + plannedCompute*p.Warm,
		gpu: true, do: func(ctx context.Context, k keep) error { return r.kernels(ctx, k, n) }}
}

// Planned is a step with its place in the budget.
type Planned struct {
	Name  string  `json:"name"`
	At    float64 `json:"at_seconds"`
	Takes float64 `json:"takes_seconds"`
	// LeftOut is why the step does not run.
	LeftOut string `json:"left_out,omitempty"`
}

// fit returns how long the step can take if this much time is left. If the step does not fit,
// leftOut is the reason.
func (s step) fit(left time.Duration) (takes time.Duration, leftOut string) {
	left = left.Round(time.Second) // rounded for display
	switch {
	case s.takes <= left:
		return s.takes, ""
	case s.least > 0 && s.least <= left:
		return left, ""
	}
	return 0, fmt.Sprintf("needs about %s, %s of the budget are left", clock(s.takes), clock(max(0, left)))
}

// Plan fits the steps into the budget, in order.
func (o Options) Plan() []Planned {
	var at time.Duration
	var out []Planned
	for _, s := range (&run{Options: o}).steps() {
		takes, leftOut := s.fit(o.Budget - at)
		out = append(out, Planned{s.name, at.Seconds(), takes.Seconds(), leftOut})
		at += takes
	}
	return out
}

// WritePlan prints a plan with times.
func WritePlan(w io.Writer, budget time.Duration, plan []Planned) {
	end := 0.0
	for _, p := range plan {
		if p.LeftOut == "" {
			end = p.At + p.Takes
		}
	}
	fmt.Fprintf(w, "plan: about %s of %s\n", clock(seconds(end)), clock(budget))
	var left []string
	for _, p := range plan {
		if p.LeftOut != "" {
			left = append(left, p.Name)
			continue
		}
		fmt.Fprintf(w, "  %5s  %-24s %s\n", clock(seconds(p.At)), p.Name, clock(seconds(p.Takes)))
	}
	if len(left) > 0 {
		fmt.Fprintf(w, "no time for: %s\n", strings.Join(left, "; "))
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// clock formats a time as minutes and seconds.
func clock(d time.Duration) string {
	d = d.Round(time.Second)
	return fmt.Sprintf("%d:%02d", d/time.Minute, d%time.Minute/time.Second)
}

// variant is one kernel, and how to make a session measure it: measure this class, and avoid the
// kernels in avoid.
type variant struct {
	kernel string
	class  pal.AppClass
	avoid  []string
}

// variants returns the kernels that the docs name for a GPU, the strongest first.
func variants(d gpu.Device) []variant {
	compute := []string{"wgmma1", "mma1", "ffma1"}
	switch {
	case d.Chip.ComputeMajor < 8:
		compute = compute[2:]
	case d.Chip.ComputeMajor != 9 || d.Chip.ComputeMinor != 0:
		compute = compute[1:]
	}
	var out []variant
	for i, k := range compute {
		out = append(out, variant{k, pal.ClassA, compute[:i:i]})
	}
	return append(out, variant{"triad1", pal.ClassC, nil}, variant{"gather1", pal.ClassD, nil})
}
