// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal"
)

// Plan is the duration and precision of a measurement.
type Plan struct {
	Classes    []pal.AppClass
	Window     time.Duration // length of one repetition
	CI         float64       // target for the relative half width of the median's confidence interval
	MinWindows int           // minimum per class
	Limit      time.Duration // longest session of a GPU, from when its compute kernel is compiled
	Warmup     time.Duration // longest warm-up
	Settle     time.Duration // warm once a unit's time has been stable for this long
	Heat       time.Duration // warm once the temperature has hardly risen for this long; 0 ignores the temperature
	Stall      time.Duration // silence after which a GPU counts as hung
	// Start is the maximum silence while the driver starts or compiles a kernel.
	Start time.Duration
	// Avoid lists the compute kernels to skip.
	Avoid []string
}

// DefaultPlan takes two to five minutes per GPU, including the warm-up.
func DefaultPlan() Plan {
	return Plan{Classes: pal.AppClasses(), Window: 500 * time.Millisecond, CI: 0.003, MinWindows: 20,
		Limit: 5 * time.Minute, Warmup: 3 * time.Minute, Settle: 10 * time.Second, Heat: time.Minute, Stall: 20 * time.Second, Start: time.Minute}
}

// weights are the classes' shares of a session's time. Classes with more noise need more time.
var weights = map[pal.AppClass]float64{pal.ClassA: 30, pal.ClassB: 15, pal.ClassC: 6, pal.ClassD: 6}

// slowShare is the share of a healthy GPU's rate below which a GPU is an outlier, even without other
// GPUs to compare it with.
const slowShare = 0.55

// overPeak is the factor by which a plausible rate can exceed the hardware's limit at the largest
// clock. overClock is the same for the limit at the measured clock, which is sampled only a few
// times a second.
const (
	overPeak  = 1.03
	overClock = 1.15
)

// Runner measures GPUs through child processes.
type Runner struct {
	// Self is the command line that runs [Child], without its flags.
	Self []string
	// Library is the name or path of the CUDA driver library.
	Library string
	// Sample reads telemetry. It can be nil.
	Sample func(ids []string) map[string]gpu.Sample
	// Processes returns the processes that compute on each GPU, and leaves out GPUs that do not
	// answer. It can be nil.
	Processes func(ids []string) map[string][]int
	// Allocated asks Nomad which of the GPUs are allocated, and to which allocations.
	Allocated func(ctx context.Context, ids []string) (map[string]string, error)
	proc      string // "" means /proc
}

// Target is a GPU to measure.
type Target struct {
	Device gpu.Device
	Driver string // version
	Beside int    // see Result
	Of     int
}

// ending is the value of Progress.Doing while the session's process ends.
const ending = "ending"

// Progress describes the progress of a running session.
type Progress struct {
	GPU   string
	Doing string        // "warming up", "class A", …
	Done  time.Duration // time spent in the session
	Limit time.Duration // longest time of the session
	Apps  []App         // results so far
}

// session is a running measurement of one GPU.
type session struct {
	Runner
	plan    Plan
	target  Target
	child   *process
	watch   *telemetry
	started time.Time
	begun   time.Time // when the compute kernel was compiled: the plan's limit counts from here
	// compiling is the kernel that the child's driver is compiling now.
	compiling string
	progress  func(Progress)
	work      map[pal.AppClass]string // what one unit does in each class
	sums      map[pal.AppClass]string // first checksum of each class
	result    Result
}

// Session measures one GPU. If ctx ends, it kills the child and returns a partial result. progress
// can be nil.
func (r Runner) Session(ctx context.Context, t Target, p Plan, progress func(Progress)) Result {
	p.Warmup = min(p.Warmup, p.Limit/2) // otherwise no time might be left to measure
	p.Settle, p.Heat = min(p.Settle, p.Warmup), min(p.Heat, p.Warmup)
	s := newSession(r, t, p, progress)
	d := t.Device
	if err := Supported(d); err != nil {
		s.result.Partial, s.result.Problem = true, fmt.Sprintf("GPU %q (%s) is not measured: %v", d.ID, d.Model, err)
		return s.result
	}
	err := s.run(ctx)
	if err == nil {
		err = s.missing()
	}
	if err != nil {
		s.result.Partial = true
		s.result.Problem = err.Error()
		if errors.Is(err, context.Canceled) {
			s.result.Problem = interrupted
		}
	}
	s.result.Seconds = math.Round(10*time.Since(s.started).Seconds()) / 10
	return s.result
}

func newSession(r Runner, t Target, p Plan, progress func(Progress)) *session {
	d, now := t.Device, time.Now()
	s := &session{Runner: r, plan: p, target: t, started: now, begun: now, progress: progress, sums: map[pal.AppClass]string{}}
	s.result = Result{GPU: d.ID, Model: d.Model, Driver: t.Driver, ECC: d.ECC, Started: now.UTC().Truncate(time.Second), Beside: t.Beside, Of: t.Of, Apps: []App{}}
	if d.PowerLimitW != nil {
		s.result.PowerW = *d.PowerLimitW
	}
	return s
}

// missing returns an error if a complete session measured nothing, or lacks class A, which matters
// most to jobs.
func (s *session) missing() error {
	if len(s.result.Apps) == 0 {
		return fmt.Errorf("no class could be measured%s", s.lastWarning("class "))
	}
	measured := func(a App) bool { return a.App == pal.ClassA }
	if slices.Contains(s.plan.Classes, pal.ClassA) && !slices.ContainsFunc(s.result.Apps, measured) {
		return fmt.Errorf("class A could not be measured%s", s.lastWarning("class A: "))
	}
	return nil
}

// lastWarning returns the last warning with this prefix, for an error message.
func (s *session) lastWarning(prefix string) string {
	for _, w := range slices.Backward(s.result.Warnings) {
		if rest, ok := strings.CutPrefix(w, prefix); ok {
			return ": " + rest
		}
	}
	return ""
}

// next returns the child's next message, after handling messages about compiling.
func (s *session) next(ctx context.Context) (message, error) {
	for {
		patience := s.plan.Stall
		if s.work == nil || s.compiling != "" {
			patience = s.plan.Start
		}
		m, err := s.child.next(ctx, patience)
		switch {
		case err != nil:
			if s.compiling != "" && (errors.Is(err, errStalled) || errors.Is(err, errEnded)) {
				err = fmt.Errorf("compiling kernel %q: %w", s.compiling, err)
			}
			return m, err
		case m.Compiling != "":
			s.compiling = m.Compiling
			s.tell("compiling " + m.Compiling)
		case m.Compiled != nil:
			s.compiling = ""
			if s.result.Compile == nil {
				s.result.Compile = map[string]float64{}
			}
			s.result.Compile[m.Compiled.Kernel] = m.Compiled.Seconds
		default:
			return m, nil
		}
	}
}

func (s *session) run(ctx context.Context) error {
	child, err := s.start(ctx, s.target.Device.ID, s.plan)
	if err != nil {
		return err
	}
	s.child = child
	s.watch = watchTelemetry(ctx, s.target.Device.ID, s.Sample)
	err = s.measure(ctx)
	s.watch.close()
	s.tell(ending)
	child.close(err != nil)
	s.result.CPUSeconds = math.Round(100*child.cpu().Seconds()) / 100
	return err
}

// measure runs the session: the warm-up, then one class after the other.
func (s *session) measure(ctx context.Context) error {
	m, err := s.next(ctx)
	if err != nil {
		return err
	}
	if m.Device == nil {
		return fmt.Errorf("the first message of the measuring process does not say which GPU it measures")
	}
	s.begun = time.Now()
	s.work = m.Device.Work
	s.result.CUDA = m.Device.CUDA
	s.result.Warnings = append(s.result.Warnings, m.Device.Skipped...)
	s.result.Key = s.key()
	if err := s.warmUp(ctx); err != nil {
		return fmt.Errorf("warming up: %w", err)
	}
	var left float64
	for _, c := range s.plan.Classes {
		left += weights[c]
	}
	for _, c := range s.plan.Classes {
		share := time.Duration(float64(s.plan.Limit-time.Since(s.begun)) * weights[c] / left)
		left -= weights[c]
		if err := s.class(ctx, c, share); err != nil {
			return fmt.Errorf("class %s: %w", c, err)
		}
	}
	return nil
}

// key returns the comparability key: kernels and their work, power limit, ECC and driver
// branch. An unknown part is "?".
func (s *session) key() string {
	var work strings.Builder
	for _, c := range pal.AppClasses() {
		fmt.Fprintf(&work, "%s\n", s.work[c])
	}
	sum := sha256.Sum256([]byte(work.String()))
	kernel, _, _ := strings.Cut(s.work[pal.ClassA], "*")
	power := "?W"
	ecc := "ecc?"
	driver := "r?"
	if s.result.PowerW > 0 {
		power = fmt.Sprintf("%dW", s.result.PowerW)
	}
	e := s.result.ECC
	if e != nil {
		ecc = map[bool]string{true: "ecc", false: "noecc"}[*e]
	}
	branch, _, _ := strings.Cut(s.result.Driver, ".")
	if branch != "" {
		driver = "r" + branch
	}
	return strings.Join([]string{kernel, power, ecc, driver, hex.EncodeToString(sum[:2])}, "/")
}

func (s *session) tell(doing string) {
	if s.progress != nil {
		s.progress(Progress{GPU: s.target.Device.ID, Doing: doing, Done: time.Since(s.begun), Limit: s.plan.Limit,
			Apps: slices.Clip(s.result.Apps)})
	}
}

// warmUp runs class A until the unit's time and the temperature (if known) have settled, but not
// longer than the plan allows.
func (s *session) warmUp(ctx context.Context) error {
	from := time.Now()
	w := Warmup{}
	type unitTime struct {
		at time.Time
		ms float64
	}
	var seen []unitTime
	_, err := s.windows(ctx, pal.ClassA, func(cw childWindow) bool {
		now := time.Now()
		seen = append(seen, unitTime{now, cw.Ms})
		s.tell("warming up")
		var recent []float64
		for i, p := range seen {
			if now.Sub(p.at) <= s.plan.Settle || i >= len(seen)-settleWindows {
				recent = append(recent, p.ms)
			}
		}
		settled := now.Sub(seen[0].at) >= s.plan.Settle && len(recent) >= settleWindows && steady(recent, settleBound)
		w.Steady = settled && s.plan.warm(now, s.watch.between(from, now))
		return w.Steady || now.Sub(from) >= s.plan.Warmup
	})
	w.Seconds = math.Round(10*time.Since(from).Seconds()) / 10
	s.result.Warmup = &w
	return err
}

// settleBound is the maximum relative change of the unit time on a settled GPU. settleWindows is
// the minimum number of windows for this check.
const (
	settleWindows = 4
	settleBound   = 0.002
)

// windows makes the child measure one class, window after window, until done returns true for a
// window. windows returns the child's description of the unit of work.
func (s *session) windows(ctx context.Context, c pal.AppClass, done func(childWindow) bool) (*childReady, error) {
	s.child.order("run " + string(c))
	m, err := s.next(ctx)
	if err != nil {
		return nil, err
	}
	ready := m.Ready
	for stopped := false; ; {
		m, err := s.next(ctx)
		switch {
		case err != nil:
			return ready, err
		case m.Stopped:
			return ready, nil
		case stopped || m.Window == nil:
			continue // no window, or a window that still ran when the class was stopped
		case done(*m.Window):
			s.child.order("stop")
			stopped = true
		}
	}
}

// class measures one class and adds it to the result.
func (s *session) class(ctx context.Context, c pal.AppClass, share time.Duration) error {
	from := time.Now()
	first := true
	var ws []Repetition
	ready, err := s.windows(ctx, c, func(cw childWindow) bool {
		s.tell("class " + string(c))
		if first { // the child used the first window to find out how long a unit takes
			first = false
			return false
		}
		w := Repetition{Ms: cw.Ms, Units: cw.Units}
		now := time.Now()
		took := time.Duration(cw.Ms * float64(cw.Units) * float64(time.Millisecond))
		w.annotate(s.watch.between(now.Add(-took), now))
		wrong := s.wrongSum(cw)
		if wrong != "" {
			w.Dropped = wrong
		}
		ws = append(ws, w)
		good := kept(ws)
		return now.Sub(from) >= share || len(good) >= s.plan.MinWindows && summarize(good).CI <= s.plan.CI
	})
	if ready != nil && len(ws) > 0 {
		s.finish(ready, ws, s.watch.between(from, time.Now()))
	}
	return err
}

// sdcDropped marks windows whose result was wrong.
const sdcDropped = "wrong-result"

// wrongSum returns sdcDropped if the window's result differs from the first result of its class.
func (s *session) wrongSum(w childWindow) string {
	first, ok := s.sums[w.Class]
	if !ok {
		s.sums[w.Class] = w.Sum
		return ""
	}
	if first != w.Sum {
		return sdcDropped
	}
	return ""
}

// kept returns the times of the windows that count.
func kept(ws []Repetition) []float64 {
	var out []float64
	for _, w := range ws {
		if w.Dropped == "" {
			out = append(out, w.Ms)
		}
	}
	return out
}
