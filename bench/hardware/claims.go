// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package hardware

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/pal"
)

// Bounds for what the docs claim about a healthy GPU. These bounds were set without a GPU, so a
// bound can be wrong.
const (
	compileLimit  = 2.0   // seconds a kernel takes to compile
	repeatLimit   = 0.004 // relative standard deviation of a kernel's runs
	sessionLimit  = 150.0 // seconds of a whole session
	abortLimit    = 2.0   // seconds until a killed measurement has ended
	eventLimit    = 1.0   // seconds until an Xid's event
	coreLimit     = 0.1   // share of a core that a measuring process uses
	unitLow       = 40.0  // milliseconds of a unit of work
	unitHigh      = 160.0
	gatherLow     = 13.0 // a unit of class D takes 80 ms at a tenth of the peak, and up to 60 % of the peak is plausible
	idleMemoryMiB = 1024
)

// shares are the bounds of each kernel's share of the hardware's peak.
var shares = map[string][2]float64{
	"wgmma1": {0.55, 1.03}, "mma1": {0.45, 1.03}, "ffma1": {0.75, 1.03}, "triad1": {0.75, 0.97}, "gather1": {0.05, 0.6},
}

// Claims compares the record with the docs.
func Claims(r Record) []Claim {
	var out []Claim
	for _, check := range []func(Record) Claim{
		stepsDone, nvmlAgrees, idleIsIdle, kernelsRun, compiles, strongest, powerCapped, unitTimes, peakShares, repeats, sumsAgree,
		warmsUp, sessionTime, sleeps, jobSeen, aborts, faultsSaid, eventsArrive,
	} {
		out = append(out, check(r))
	}
	return out
}

// tally collects the observations for one claim.
type tally struct {
	n       int
	most    float64 // the largest value
	against []string
}

// see adds an observation. If against is true, the observation contradicts the claim, and its text
// is kept.
func (t *tally) see(value float64, against bool, format string, args ...any) {
	t.n++
	t.most = max(t.most, value)
	if against {
		t.against = append(t.against, fmt.Sprintf(format, args...))
	}
}

// claim returns the verdict. found describes the result if nothing contradicts the claim.
func (t *tally) claim(text, found string, args ...any) Claim {
	switch {
	case t.n == 0:
		return Claim{text, Unseen, ""}
	case len(t.against) > 0:
		const most = 8
		if len(t.against) > most {
			t.against = append(t.against[:most], fmt.Sprintf("and %d more", len(t.against)-most))
		}
		return Claim{text, Disagrees, strings.Join(t.against, "; ")}
	}
	return Claim{text, Agrees, fmt.Sprintf(found, args...)}
}

func stepsDone(r Record) Claim {
	var t tally
	left := 0
	for _, s := range r.Steps {
		if s.LeftOut != "" {
			left++
			continue
		}
		t.see(0, s.Problem != "", "%s: %s", s.Name, s.Problem)
	}
	return t.claim("every step can be done", "%d steps; %d were left out", t.n, left)
}

func nvmlAgrees(r Record) Claim {
	const text = "our scan agrees with nvidia-smi"
	if r.SMI == nil {
		return Claim{text, Unseen, "no nvidia-smi"}
	}
	t := tally{n: r.SMI.Compared}
	for _, m := range r.SMI.Differ {
		t.see(0, true, "%s %s: ours %q, nvidia-smi %q", short(m.GPU), m.Field, m.Ours, m.SMI)
	}
	return t.claim(text, "%d values", r.SMI.Compared)
}

func idleIsIdle(r Record) Claim {
	var t tally
	for id, s := range r.Idle {
		if used := s.AllocatedMiB(); r.InUse[id] == "" && used != nil {
			t.see(float64(*used), *used > idleMemoryMiB, "%s: %d MiB", short(id), *used)
		}
	}
	slices.Sort(t.against)
	return t.claim("an idle GPU uses at most 1 GiB of its memory", "at most %.0f MiB", t.most)
}

// runs calls each for every successful run of a kernel.
func runs(r Record, each func(k KernelRuns, run KernelRun)) {
	for _, k := range r.Kernels {
		for _, run := range k.Runs {
			if run.Problem == "" {
				each(k, run)
			}
		}
	}
}

// kernelsRun checks the claim that every kernel runs. All other claims about kernels ignore failed
// runs.
func kernelsRun(r Record) Claim {
	var t tally
	for _, k := range r.Kernels {
		failed, last := 0, ""
		for _, run := range k.Runs {
			if run.Problem != "" {
				failed, last = failed+1, run.Problem
			}
		}
		t.see(0, failed > 0, "%s on %s: %d of %d runs failed: %s", k.Kernel, short(k.GPU), failed, len(k.Runs), last)
	}
	return t.claim("every kernel runs, each time", "%d kernels on GPUs", t.n)
}

func compiles(r Record) Claim {
	var t tally
	runs(r, func(k KernelRuns, run KernelRun) {
		took := run.CompileSeconds
		t.see(took, took > compileLimit, "%s on %s: %.1f s", k.Kernel, short(k.GPU), took)
	})
	return t.claim("the driver compiles a kernel in at most 2 s", "at most %.2f s", t.most)
}

func strongest(r Record) Claim {
	var t tally
	want := map[string]string{}
	for _, d := range r.GPUs {
		want[d.ID] = variants(d)[0].kernel
	}
	for _, s := range r.Session {
		for _, a := range s.Apps {
			if best := want[s.GPU]; a.App == pal.ClassA && best != "" {
				t.see(0, a.Kernel != best, "%s: %s ran, not %s: %s", short(s.GPU), a.Kernel, best, strings.Join(s.Warnings, "; "))
			}
		}
	}
	return t.claim("the strongest kernel for the architecture runs", "")
}

func powerCapped(r Record) Claim {
	var t tally
	for _, s := range r.Session {
		for _, a := range s.Apps {
			if a.App == pal.ClassA && a.LimitedBy != measure.LimitUnknown {
				t.see(0, a.LimitedBy != measure.LimitPower, "%s: %s", short(s.GPU), a.LimitedBy)
			}
		}
	}
	return t.claim("class A is limited by the power cap", "")
}

func unitTimes(r Record) Claim {
	var t tally
	low := math.Inf(1)
	for _, s := range r.Session {
		for _, a := range s.Apps {
			low = min(low, a.Ms)
			least := unitLow
			if a.App == pal.ClassD {
				least = gatherLow
			}
			t.see(a.Ms, a.Ms < least || a.Ms > unitHigh, "%s class %s: %.1f ms", short(s.GPU), a.App, a.Ms)
		}
	}
	return t.claim("a unit of work takes about 80 ms: 40 to 160, and 13 to 160 for class D, whose share of the peak is unknown", "%.0f to %.0f ms", low, t.most)
}

func peakShares(r Record) Claim {
	var t tally
	runs(r, func(k KernelRuns, run KernelRun) {
		if b, ok := shares[k.Kernel]; ok && run.Share != 0 {
			t.see(0, run.Share < b[0] || run.Share > b[1], "%s on %s: %.0f %% of peak", k.Kernel, short(k.GPU), 100*run.Share)
		}
	})
	t.against = slices.Compact(t.against)
	return t.claim("rates are a plausible share of the hardware's peak at the clock "+
		"(wgmma1 55–103 %, mma1 45–103, ffma1 75–103, triad1 75–97, gather1 5–60)", "")
}

func repeats(r Record) Claim {
	var t tally
	for _, k := range r.Kernels {
		if s, ok := k.spread(); ok {
			t.see(s, s > repeatLimit, "%s on %s: %.2f %%", k.Kernel, short(k.GPU), 100*s)
		}
	}
	return t.claim("a kernel's runs repeat within 0.4 % (standard deviation)", "at most %.2f %%", 100*t.most)
}

// spread returns the relative standard deviation of the runs. ok is false if there are fewer than
// three good runs.
func (k KernelRuns) spread() (s float64, ok bool) {
	var sum, squares, n float64
	for _, run := range k.Runs {
		if run.Problem == "" && run.Ms > 0 {
			sum, squares, n = sum+run.Ms, squares+run.Ms*run.Ms, n+1
		}
	}
	if n < 3 {
		return 0, false
	}
	mean := sum / n
	return math.Sqrt(max(0, (squares-n*mean*mean)/(n-1))) / mean, true
}

func sumsAgree(r Record) Claim {
	sums := map[string]map[string]bool{} // by model and kernel
	runs(r, func(k KernelRuns, run KernelRun) {
		if run.Sum == "" {
			return
		}
		at := k.Kernel + " on " + k.Model
		if sums[at] == nil {
			sums[at] = map[string]bool{}
		}
		sums[at][run.Sum] = true
	})
	var t tally
	for at, s := range sums {
		t.see(0, len(s) > 1, "%s: %d results", at, len(s))
	}
	slices.Sort(t.against)
	return t.claim("a kernel gives the same result in each run and on each GPU of a model", "%d kernels", t.n)
}

func warmsUp(r Record) Claim {
	var t tally
	if r.Quick { // the warm-up of a quick run is too short
		r.Session = nil
	}
	for _, s := range r.Session {
		if w := s.Warmup; w != nil {
			t.see(w.Seconds, !w.Steady, "%s: not after %.0f s", short(s.GPU), w.Seconds)
		}
	}
	return t.claim("the clock becomes steady before the warm-up (45 s) ends", "after at most %.0f s", t.most)
}

func sessionTime(r Record) Claim {
	var t tally
	for _, s := range r.Session {
		if s.Partial && r.Interrupted {
			continue
		}
		if s.Partial {
			t.see(s.Seconds, true, "%s: %s", short(s.GPU), s.Problem)
		} else {
			t.see(s.Seconds, s.Seconds > sessionLimit, "%s: %.0f s", short(s.GPU), s.Seconds)
		}
	}
	return t.claim("a whole measurement of all GPUs takes about two minutes (at most 150 s)", "at most %.0f s", t.most)
}

func sleeps(r Record) Claim {
	var t tally
	for _, s := range r.Session {
		if !s.Partial && s.Seconds >= 1 {
			share := s.CPUSeconds / s.Seconds
			t.see(share, share > coreLimit, "%s: %.0f %% of a core", short(s.GPU), 100*share)
		}
	}
	return t.claim("a measuring process sleeps while the GPU works (at most 10 % of a core)", "at most %.1f %%", 100*t.most)
}

func jobSeen(r Record) Claim {
	var t tally
	found := ""
	if b := r.Beside; b != nil && b.Watched {
		found = b.Seen
		t.see(0, b.Seen == "", "the job on %s was not detected", short(b.GPU))
		t.see(0, b.After != "", "after it was killed: %s", b.After)
	}
	return t.claim("a GPU counts as in use while a process computes on it", "%s", found)
}

func aborts(r Record) Claim {
	var t tally
	if b := r.Beside; b != nil && b.AbortSeconds != 0 {
		t.see(b.AbortSeconds, b.AbortSeconds > abortLimit, "%.2f s", b.AbortSeconds)
	}
	return t.claim("a killed measurement ends within 2 s", "%.2f s", t.most)
}

func faultsSaid(r Record) Claim {
	var t tally
	for _, f := range r.Faults {
		t.see(0, !strings.Contains(f.Said, f.Want) || f.Said == "", "%s: %q, want %q", f.Name, f.Said, f.Want)
	}
	return t.claim("faults end in an error that says what happened, and the GPU works afterwards", "%d faults", t.n)
}

func eventsArrive(r Record) Claim {
	var t tally
	found := ""
	for _, f := range r.Faults {
		switch {
		case !f.WaitedFor:
		case f.EventSeconds == nil:
			t.see(0, true, "%s: no event", f.Name)
		default:
			t.see(0, *f.EventSeconds > eventLimit, "%s: Xid %d after %.2f s", f.Name, f.Xid, *f.EventSeconds)
			found = fmt.Sprintf("Xid %d after %.3f s", f.Xid, *f.EventSeconds)
		}
	}
	return t.claim("the driver's event of an Xid arrives within 1 s", "%s", found)
}

// short returns the start of a UUID, for display.
func short(id string) string {
	if len(id) > 12 {
		return id[:12]
	}
	return id
}
