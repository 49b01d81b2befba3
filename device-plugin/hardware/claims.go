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

// Bounds of what the docs claim of a sound GPU. They were set without one:
// where a machine disagrees, it may be right.
const (
	compileLimit  = 2.0   // seconds a kernel takes to compile
	repeatLimit   = 0.004 // relative standard deviation of a kernel's runs
	sessionLimit  = 150.0 // seconds of a whole session
	abortLimit    = 2.0   // seconds until a killed measurement is gone
	eventLimit    = 1.0   // seconds until an Xid's event
	coreLimit     = 0.1   // of a core that a measuring process takes
	unitLow       = 40.0  // milliseconds of a unit of work
	unitHigh      = 160.0
	idleMemoryMiB = 1024
)

// shares are the bounds of each kernel's share of the hardware's peak.
var shares = map[string][2]float64{
	"wgmma1": {0.55, 1.03}, "mma1": {0.45, 1.03}, "ffma1": {0.75, 1.03}, "triad1": {0.75, 0.97}, "gather1": {0.05, 0.6},
}

// Claims compares what was found with the docs.
func Claims(r Record) []Claim {
	var out []Claim
	for _, check := range []func(Record) Claim{
		stepsDone, nvmlAgrees, idleIsIdle, compiles, strongest, powerCapped, unitTimes, peakShares, repeats, sumsAgree,
		warmsUp, sessionTime, sleeps, jobSeen, aborts, faultsSaid, eventsArrive,
	} {
		out = append(out, check(r))
	}
	return out
}

// judged makes a claim of what speaks against it, out of n things seen.
func judged(text string, n int, against []string, found string) Claim {
	switch {
	case n == 0:
		return Claim{text, Unseen, ""}
	case len(against) > 0:
		const most = 8
		if len(against) > most {
			against = append(slices.Clone(against[:most]), fmt.Sprintf("and %d more", len(against)-most))
		}
		return Claim{text, Disagrees, strings.Join(against, "; ")}
	}
	return Claim{text, Agrees, found}
}

func stepsDone(r Record) Claim {
	var against []string
	for _, s := range r.Steps {
		if s.Problem != "" {
			against = append(against, s.Name+": "+s.Problem)
		}
	}
	return judged("every step can be done", len(r.Steps), against, fmt.Sprintf("%d steps", len(r.Steps)))
}

func nvmlAgrees(r Record) Claim {
	const text = "our scan says what nvidia-smi says"
	if r.SMI == nil {
		return Claim{text, Unseen, "no nvidia-smi"}
	}
	var against []string
	for _, m := range r.SMI.Differ {
		against = append(against, fmt.Sprintf("%s %s: ours %q, nvidia-smi %q", short(m.GPU), m.Field, m.Ours, m.SMI))
	}
	return judged(text, r.SMI.Compared+len(against), against, fmt.Sprintf("%d values", r.SMI.Compared))
}

func idleIsIdle(r Record) Claim {
	n, most := 0, int64(0)
	var against []string
	for id, s := range r.Idle {
		if r.InUse[id] != "" || s.MemoryUsedMiB == nil {
			continue
		}
		n++
		most = max(most, *s.MemoryUsedMiB)
		if *s.MemoryUsedMiB > idleMemoryMiB {
			against = append(against, fmt.Sprintf("%s: %d MiB", short(id), *s.MemoryUsedMiB))
		}
	}
	slices.Sort(against)
	return judged("an idle GPU uses at most 1 GiB of its memory", n, against, fmt.Sprintf("at most %d MiB", most))
}

// runs are all good runs with their kernel.
func runs(r Record, each func(k KernelRuns, run KernelRun)) {
	for _, k := range r.Kernels {
		for _, run := range k.Runs {
			if run.Problem == "" {
				each(k, run)
			}
		}
	}
}

func compiles(r Record) Claim {
	n, most := 0, 0.0
	var against []string
	runs(r, func(k KernelRuns, run KernelRun) {
		n++
		most = max(most, run.CompileSeconds)
		if run.CompileSeconds > compileLimit {
			against = append(against, fmt.Sprintf("%s on %s: %.1f s", k.Kernel, short(k.GPU), run.CompileSeconds))
		}
	})
	return judged("the driver compiles a kernel in at most 2 s", n, against, fmt.Sprintf("at most %.2f s", most))
}

func strongest(r Record) Claim {
	var against []string
	for _, s := range r.Session {
		for _, w := range s.Warnings {
			if strings.HasPrefix(w, "compiling ") {
				against = append(against, short(s.GPU)+": "+w)
			}
		}
	}
	return judged("the strongest kernel for the architecture runs", len(r.Session), against, "")
}

func powerCapped(r Record) Claim {
	n := 0
	var against []string
	for _, s := range r.Session {
		for _, a := range s.Apps {
			if a.App != pal.ClassA || a.LimitedBy == measure.LimitUnknown {
				continue
			}
			n++
			if a.LimitedBy != measure.LimitPower {
				against = append(against, fmt.Sprintf("%s: %s", short(s.GPU), a.LimitedBy))
			}
		}
	}
	return judged("class A is limited by the power cap", n, against, "")
}

func unitTimes(r Record) Claim {
	n, low, high := 0, math.Inf(1), 0.0
	var against []string
	for _, s := range r.Session {
		for _, a := range s.Apps {
			n++
			low, high = min(low, a.Ms), max(high, a.Ms)
			if a.Ms < unitLow || a.Ms > unitHigh {
				against = append(against, fmt.Sprintf("%s class %s: %.1f ms", short(s.GPU), a.App, a.Ms))
			}
		}
	}
	return judged("a unit of work takes about 80 ms (40 to 160)", n, against, fmt.Sprintf("%.0f to %.0f ms", low, high))
}

func peakShares(r Record) Claim {
	n := 0
	var against []string
	runs(r, func(k KernelRuns, run KernelRun) {
		b, ok := shares[k.Kernel]
		if !ok || run.Share == 0 {
			return
		}
		n++
		if run.Share < b[0] || run.Share > b[1] {
			against = append(against, fmt.Sprintf("%s on %s: %.0f %% of peak", k.Kernel, short(k.GPU), 100*run.Share))
		}
	})
	return judged("rates are a plausible share of the hardware's peak at the clock (wgmma1 55–103 %, mma1 45–103, ffma1 75–103, triad1 75–97, gather1 5–60)",
		n, slices.Compact(against), "")
}

func repeats(r Record) Claim {
	n, most := 0, 0.0
	var against []string
	for _, k := range r.Kernels {
		s, ok := k.spread()
		if !ok {
			continue
		}
		n++
		most = max(most, s)
		if s > repeatLimit {
			against = append(against, fmt.Sprintf("%s on %s: %.2f %%", k.Kernel, short(k.GPU), 100*s))
		}
	}
	return judged("a kernel's runs repeat within 0.4 % (standard deviation)", n, against, fmt.Sprintf("at most %.2f %%", 100*most))
}

// spread is the relative standard deviation of the runs; ok is false below
// three.
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
	sums := map[string]map[string]bool{} // by kernel and model
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
	var against []string
	for at, s := range sums {
		if len(s) > 1 {
			against = append(against, fmt.Sprintf("%s: %d results", at, len(s)))
		}
	}
	slices.Sort(against)
	return judged("a kernel computes the same in each run and on each GPU of a model", len(sums), against, fmt.Sprintf("%d kernels", len(sums)))
}

func warmsUp(r Record) Claim {
	n, most := 0, 0.0
	var against []string
	for _, s := range r.Session {
		if s.Warmup == nil {
			continue
		}
		n++
		most = max(most, s.Warmup.Seconds)
		if !s.Warmup.Steady {
			against = append(against, fmt.Sprintf("%s: not after %.0f s", short(s.GPU), s.Warmup.Seconds))
		}
	}
	return judged("the clock is steady within the warm-up (45 s)", n, against, fmt.Sprintf("after at most %.0f s", most))
}

func sessionTime(r Record) Claim {
	n, most := 0, 0.0
	var against []string
	for _, s := range r.Session {
		n++
		most = max(most, s.Seconds)
		switch {
		case s.Partial:
			against = append(against, fmt.Sprintf("%s: %s", short(s.GPU), s.Problem))
		case s.Seconds > sessionLimit:
			against = append(against, fmt.Sprintf("%s: %.0f s", short(s.GPU), s.Seconds))
		}
	}
	return judged("a whole measurement of all GPUs takes about two minutes (at most 150 s)", n, against, fmt.Sprintf("at most %.0f s", most))
}

func sleeps(r Record) Claim {
	n, most := 0, 0.0
	var against []string
	for _, s := range r.Session {
		if s.Partial || s.Seconds < 1 {
			continue
		}
		n++
		share := s.CPUSeconds / s.Seconds
		most = max(most, share)
		if share > coreLimit {
			against = append(against, fmt.Sprintf("%s: %.0f %% of a core", short(s.GPU), 100*share))
		}
	}
	return judged("a measuring process sleeps while the GPU works (at most 10 % of a core)", n, against, fmt.Sprintf("at most %.1f %%", 100*most))
}

func jobSeen(r Record) Claim {
	const text = "a GPU that a process computes on counts as in use"
	if r.Beside == nil || !r.Beside.Watched {
		return Claim{text, Unseen, ""}
	}
	var against []string
	if r.Beside.Seen == "" {
		against = []string{"the job on " + short(r.Beside.GPU) + " was not seen"}
	}
	if r.Beside.After != "" {
		against = append(against, "after it was killed: "+r.Beside.After)
	}
	return judged(text, 1, against, r.Beside.Seen)
}

func aborts(r Record) Claim {
	const text = "a killed measurement is gone within 2 s"
	if r.Beside == nil || r.Beside.AbortSeconds == 0 {
		return Claim{text, Unseen, ""}
	}
	found := fmt.Sprintf("%.2f s", r.Beside.AbortSeconds)
	var against []string
	if r.Beside.AbortSeconds > abortLimit {
		against = []string{found}
	}
	return judged(text, 1, against, found)
}

func faultsSaid(r Record) Claim {
	var against []string
	for _, f := range r.Faults {
		if !strings.Contains(f.Said, f.Want) || f.Said == "" {
			against = append(against, fmt.Sprintf("%s: %q, want %q", f.Name, f.Said, f.Want))
		}
	}
	return judged("faults end in an error that says what happened, and the GPU works afterwards", len(r.Faults), against, fmt.Sprintf("%d faults", len(r.Faults)))
}

func eventsArrive(r Record) Claim {
	const text = "the driver's event of an Xid arrives within 1 s"
	n := 0
	var against []string
	found := ""
	for _, f := range r.Faults {
		if !f.WaitedFor {
			continue
		}
		n++
		switch {
		case f.EventSeconds == nil:
			against = append(against, f.Name+": no event")
		case *f.EventSeconds > eventLimit:
			against = append(against, fmt.Sprintf("%s: %.2f s", f.Name, *f.EventSeconds))
		default:
			found = fmt.Sprintf("Xid %d after %.3f s", f.Xid, *f.EventSeconds)
		}
	}
	return judged(text, n, against, found)
}

// short is a UUID's beginning, for people.
func short(id string) string {
	if len(id) > 12 {
		return id[:12]
	}
	return id
}
