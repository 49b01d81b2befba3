// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package hardware

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/pal"
)

// asClaimed is a record that agrees with all that the docs claim.
func asClaimed() Record {
	soon := 0.02
	run := KernelRun{Ms: 80, Rate: 780, Share: 0.8, Sum: "a", CompileSeconds: 0.3}
	return Record{
		Steps:   []Step{{Name: "scan"}},
		Idle:    map[string]gpu.Sample{"GPU-1": {MemoryUsedMiB: new(int64(4))}},
		SMI:     &SMI{Compared: 10},
		Kernels: []KernelRuns{{GPU: "GPU-1", Model: "M", Kernel: "wgmma1", Runs: []KernelRun{run, run, run}}},
		Session: []measure.Result{{GPU: "GPU-1", Seconds: 120, CPUSeconds: 1, Warmup: &measure.Warmup{Seconds: 30, Steady: true},
			Apps: []measure.App{{App: pal.ClassA, Ms: 80, LimitedBy: measure.LimitPower}}}},
		Beside: &Beside{GPU: "GPU-1", Watched: true, Seen: "process 1", AbortSeconds: 0.5},
		Faults: []FaultTried{{Name: "x", Said: "no GPU here", Want: "no GPU"}, {Name: "y", Said: "z", WaitedFor: true, Xid: 31, EventSeconds: &soon}},
	}
}

// Each claim is contradicted by what it is about, and by nothing else.
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
		"every step":              func(r *Record) { r.Steps[0].Problem = "no answer" },
		"our scan":                func(r *Record) { r.SMI.Differ = []Mismatch{{"GPU-1", "name", "a", "b"}} },
		"an idle GPU":             func(r *Record) { r.Idle["GPU-1"] = gpu.Sample{MemoryUsedMiB: new(int64(2000))} },
		"the driver compiles":     func(r *Record) { r.Kernels[0].Runs[1].CompileSeconds = 27 },
		"the strongest kernel":    func(r *Record) { r.Session[0].Warnings = []string{`compiling kernel "wgmma1": it hung`} },
		"class A is limited":      func(r *Record) { r.Session[0].Apps[0].LimitedBy = measure.LimitNone },
		"a unit of work":          func(r *Record) { r.Session[0].Apps[0].Ms = 300 },
		"rates are a plausible":   func(r *Record) { r.Kernels[0].Runs[2].Share = 4.18 },
		"a kernel's runs repeat":  func(r *Record) { r.Kernels[0].Runs[2].Ms = 82 },
		"a kernel computes":       func(r *Record) { r.Kernels[0].Runs[2].Sum = "b" },
		"the clock is steady":     func(r *Record) { r.Session[0].Warmup.Steady = false },
		"a whole measurement":     func(r *Record) { r.Session[0].Seconds = 400; r.Session[0].CPUSeconds = 1 },
		"a measuring process":     func(r *Record) { r.Session[0].CPUSeconds = 110 },
		"a GPU that a process":    func(r *Record) { r.Beside.Seen = "" },
		"a killed measurement":    func(r *Record) { r.Beside.AbortSeconds = 8 },
		"faults end in an error":  func(r *Record) { r.Faults[0].Said = "exit status 2" },
		"the driver's event of":   func(r *Record) { r.Faults[1].EventSeconds = nil },
		"the driver's event of a": func(r *Record) { r.Faults[1].EventSeconds = &late },
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

// A step that hangs is left behind, and what it says later does not count.
func TestHungStepIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &run{Options: Options{Say: io.Discard}}
		over := make(chan struct{})
		r.step(t.Context(), step{"hung", time.Minute, func(context.Context) (found, error) {
			<-over
			return func(rec *Record) { rec.Driver = "late" }, nil
		}})
		r.step(t.Context(), step{"next", time.Minute, func(context.Context) (found, error) {
			return func(rec *Record) { rec.Node = "here" }, errors.New("in part")
		}})
		close(over)
		synctest.Wait()
		want := []Step{{"hung", 65, "no answer: context deadline exceeded"}, {"next", 0, "in part"}}
		if diff := cmp.Diff(want, r.record.Steps); diff != "" || r.record.Driver != "" || r.record.Node != "here" {
			t.Errorf("driver %q, node %q; steps (-want +got)\n%s", r.record.Driver, r.record.Node, diff)
		}
	})
}
