// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package hardware

import (
	"context"
	"errors"
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/pal"
)

// asClaimed returns a record that agrees with all claims.
func asClaimed() Record {
	soon := 0.02
	run := KernelRun{Ms: 80, Rate: 780, Share: 0.8, Sum: "a", CompileSeconds: 0.3}
	return Record{
		Steps:   []Step{{Name: "scan"}, {Name: "soak", LeftOut: "needs about 5:03"}},
		GPUs:    []gpu.Device{{ID: "GPU-1", Chip: gpu.Chip{ComputeMajor: 9}}},
		Idle:    map[string]gpu.Sample{"GPU-1": {MemoryUsedMiB: new(int64(4))}},
		SMI:     &SMI{Compared: 10},
		Kernels: []KernelRuns{{GPU: "GPU-1", Model: "M", Kernel: "wgmma1", Runs: []KernelRun{run, run, run}}},
		Session: []measure.Result{{GPU: "GPU-1", Seconds: 120, CPUSeconds: 1, Warmup: &measure.Warmup{Seconds: 30, Steady: true},
			Apps: []measure.App{{App: pal.ClassA, Kernel: "wgmma1", Ms: 80, LimitedBy: measure.LimitPower}}}},
		Beside: &Beside{GPU: "GPU-1", Watched: true, Seen: "process 1", AbortSeconds: 0.5},
		Faults: []FaultTried{{Name: "x", Said: "no GPU here", Want: "no GPU"}, {Name: "y", Said: "z", WaitedFor: true, Xid: 31, EventSeconds: &soon}},
	}
}

// Each claim is contradicted only by the observation that it is about.
func TestClaims(t *testing.T) {
	for _, c := range Claims(asClaimed()) {
		if c.Verdict != Agrees {
			t.Errorf("%s: %s, %q", c.Text, c.Verdict, c.Found)
		}
	}
	for _, c := range Claims(Record{}) {
		if c.Verdict != Unseen || strings.ContainsAny(c.Found, "0123456789") {
			t.Errorf("with nothing seen, %s: %s, %q; want no number", c.Text, c.Verdict, c.Found)
		}
	}
	late := 1.5
	for claim, change := range map[string]func(*Record){
		"every step":               func(r *Record) { r.Steps[0].Problem = "no answer" },
		"our scan":                 func(r *Record) { r.SMI.Differ = []Mismatch{{"GPU-1", "name", "a", "b"}} },
		"an idle GPU":              func(r *Record) { r.Idle["GPU-1"] = gpu.Sample{MemoryUsedMiB: new(int64(2000))} },
		"every kernel runs":        func(r *Record) { r.Kernels[0].Runs[0] = KernelRun{Problem: "lost"} },
		"the driver compiles":      func(r *Record) { r.Kernels[0].Runs[1].CompileSeconds = 27 },
		"the strongest kernel":     func(r *Record) { r.Session[0].Apps[0].Kernel = "mma1" },
		"class A is limited":       func(r *Record) { r.Session[0].Apps[0].LimitedBy = measure.LimitNone },
		"a unit of work":           func(r *Record) { r.Session[0].Apps[0].Ms = 300 },
		"rates are a plausible":    func(r *Record) { r.Kernels[0].Runs[2].Share = 4.18 },
		"a kernel's runs repeat":   func(r *Record) { r.Kernels[0].Runs[2].Ms = 82 },
		"a kernel gives":           func(r *Record) { r.Kernels[0].Runs[2].Sum = "b" },
		"the clock becomes steady": func(r *Record) { r.Session[0].Warmup.Steady = false },
		"a whole measurement":      func(r *Record) { r.Session[0].Seconds = 400; r.Session[0].CPUSeconds = 1 },
		"a measuring process":      func(r *Record) { r.Session[0].CPUSeconds = 110 },
		"a GPU counts as in use":   func(r *Record) { r.Beside.Seen = "" },
		"a killed measurement":     func(r *Record) { r.Beside.AbortSeconds = 8 },
		"faults end in an error":   func(r *Record) { r.Faults[0].Said = "exit status 2" },
		"the driver's event of":    func(r *Record) { r.Faults[1].EventSeconds = nil },
		"the driver's event of a":  func(r *Record) { r.Faults[1].EventSeconds = &late },
	} {
		r := asClaimed()
		change(&r)
		var got []string
		for _, c := range Claims(r) {
			if c.Verdict == Disagrees {
				got = append(got, c.Text)
			}
		}
		if len(got) != 1 || !strings.HasPrefix(got[0], claim) {
			t.Errorf("%q: disagrees with %q", claim, got)
		}
	}
}

// If a gather reaches a plausible share of the GPU's peak, its time is plausible, too: a unit takes
// 80 ms at a tenth of the peak.
func TestGatherAtAnyPlausibleShare(t *testing.T) {
	for _, share := range []float64{shares["gather1"][0], 0.2, 0.35, shares["gather1"][1]} {
		r := asClaimed()
		r.Session[0].Apps = []measure.App{{App: pal.ClassD, Ms: 80 * 0.1 / share}}
		if c := unitTimes(r); c.Verdict != Agrees {
			t.Errorf("at %.0f %% of the peak: %s", 100*share, c.Found)
		}
	}
}

// A step that hangs is abandoned, and its later results do not count.
func TestHungStepIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &run{Options: Options{Say: io.Discard, Budget: 10 * time.Minute, Out: filepath.Join(t.TempDir(), "out")}}
		over := make(chan struct{})
		r.step(t.Context(), step{name: "hung", takes: 15 * time.Second, do: func(_ context.Context, k keep) error {
			<-over
			k(func(rec *Record) { rec.Driver = "late" }, "late")
			return nil
		}})
		r.step(t.Context(), step{name: "next", do: func(_ context.Context, k keep) error {
			k(func(rec *Record) { rec.Node = "here" }, "")
			return errors.New("in part")
		}})
		close(over)
		synctest.Wait()
		want := []Step{{Name: "hung", Seconds: 65, Problem: "no answer: context deadline exceeded"}, {Name: "next", Problem: "in part"}}
		if diff := cmp.Diff(want, r.record.Steps); diff != "" || r.record.Driver != "" || r.record.Node != "here" {
			t.Errorf("driver %q, node %q; steps (-want +got)\n%s", r.record.Driver, r.record.Node, diff)
		}
	})
}

// Even on a short budget, steps of about a second run.
func TestShortBudget(t *testing.T) {
	for _, budget := range []time.Duration{time.Second, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := &run{Options: Options{Say: io.Discard, Budget: budget, Out: filepath.Join(t.TempDir(), "out"), Pace: PaceFor(budget)}}
			ctx, cancel := context.WithTimeout(t.Context(), budget)
			defer cancel()
			time.Sleep(10 * time.Millisecond) // so that the plan can be printed
			tried := 0
			for _, s := range r.steps()[:4] {
				s.do = func(context.Context, keep) error { tried++; return nil }
				r.step(ctx, s)
			}
			if tried != 4 {
				t.Errorf("%s: %+v", budget, r.record.Steps)
			}
		})
	}
}

// A quick run does not warm up as long as the claim assumes.
func TestQuickWarmup(t *testing.T) {
	r := Record{Quick: true, Session: []measure.Result{{GPU: "GPU-1", Warmup: &measure.Warmup{Seconds: 2}}}}
	if c := warmsUp(r); c.Verdict != Unseen {
		t.Errorf("quick: %+v", c)
	}
	if r.Quick = false; warmsUp(r).Verdict != Disagrees {
		t.Errorf("not quick: %+v", warmsUp(r))
	}
}

// The most important claims come first, and the plan fits its budget, whatever the budget is.
func TestPlanFitsItsBudget(t *testing.T) {
	for budget := 10 * time.Second; budget < time.Hour; budget += 7 * time.Second {
		o := Options{Budget: budget, Runs: 10, Faults: true, Pace: PaceFor(budget)}
		end, taken := 0.0, map[string]bool{}
		for _, p := range o.Plan() {
			if p.LeftOut != "" {
				continue
			}
			if math.Abs(p.At-end) > 0.001 {
				t.Fatalf("%s: %s begins at %v s, want %v", budget, p.Name, p.At, end)
			}
			end += p.Takes
			taken[p.Name] = true
		}
		if end > budget.Seconds()+0.001 {
			t.Errorf("a plan of %v s for %s", end, budget)
		}
		for less, more := range map[string]string{"kernels, run 1 of 10": "class rates", "kernels, run 2 of 10": "kernels, run 1 of 10", "class rates": "scan"} {
			if taken[less] && !taken[more] {
				t.Errorf("%s: time for %s, none for %s", budget, less, more)
			}
		}
		if budget >= 8*time.Minute && !(taken["kernels, run 3 of 10"] && taken["soak"] && taken["faults"]) {
			t.Errorf("%s is not enough for %v", budget, taken)
		}
	}
}

// The kit's warm-up is too short for a temperature that is watched over a minute: the
// temperature would never settle, and the page would report a disagreement for every GPU.
func TestWarmupCanBeSteady(t *testing.T) {
	for _, budget := range []time.Duration{4 * time.Minute, 8 * time.Minute} {
		if p := PaceFor(budget).Session; p.Warmup < 2*p.Heat {
			t.Errorf("with %s: a warm-up of %s, heat is watched over %s", budget, p.Warmup, p.Heat)
		}
	}
}

// A figure belongs to the kernel that produced it.
func TestFigureOfAnotherKernel(t *testing.T) {
	res := measure.Result{Warnings: []string{`compiling kernel "wgmma1": it hung`}, Apps: []measure.App{{App: pal.ClassA, Kernel: "mma1", Ms: 80, Rate: 500}}}
	if run := kernelRun("wgmma1", res); run.Rate != 0 || run.Problem != `mma1 ran in its place: compiling kernel "wgmma1": it hung` {
		t.Errorf("%+v", run)
	}
	if run := kernelRun("mma1", res); run.Rate != 500 || run.Problem != "" {
		t.Errorf("%+v", run)
	}
}

// The curve consists of the means over five seconds each, from the first second on.
func TestSoakCurve(t *testing.T) {
	res := measure.Result{GPU: "GPU-1", Apps: []measure.App{{Kernel: "wgmma1"}}}
	for i := range 41 { // half a second each
		temp := float64(40 + i)
		res.Apps[0].Windows = append(res.Apps[0].Windows, measure.Repetition{Ms: 100, Units: 5, TempC: &temp})
	}
	s := soakOf(res)
	if len(s.Points) != 4 || s.Kernel != "wgmma1" {
		t.Fatalf("%+v", s)
	}
	for i, want := range []float64{44.5, 54.5, 64.5, 74.5} {
		if p := s.Points[i]; p.Seconds != 5*float64(i+1) || p.Ms != 100 || *p.TempC != want || p.PowerW != nil {
			t.Errorf("%+v, %v °C; want %v °C", p, *p.TempC, want)
		}
	}
}
