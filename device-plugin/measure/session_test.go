// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/cuda/fakecuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/internal/guard"
	"github.com/nomad-pal/nomad-pal/internal/patience"
	"github.com/nomad-pal/nomad-pal/pal"
)

// libraryEnv names the variable with the directory of the fake driver that TestMain built.
const libraryEnv = "MEASURE_TEST_LIBRARY"

// The test binary also acts as the measuring process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ChildCommand {
		os.Exit(ChildMain(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(withDriver(m))
}

func withDriver(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fakecuda")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	switch lib, err := fakecuda.Build(dir); {
	case err == nil:
		os.Setenv(libraryEnv, lib)
	case !errors.Is(err, fakecuda.ErrNoCompiler):
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return guard.Main(m)
}

// fake is a machine with the fake CUDA driver.
type fake struct {
	Runner
	settings string // the settings file
}

func newFake(t *testing.T, settings ...string) fake {
	t.Helper()
	lib := os.Getenv(libraryEnv)
	if lib == "" {
		t.Skip(fakecuda.ErrNoCompiler)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Each test has its own library name, and so its own settings.
	own := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.Symlink(lib, own); err != nil {
		t.Fatal(err)
	}
	f := fake{Runner{Self: []string{self, ChildCommand}, Library: own}, own + ".settings"}
	f.tell(t, settings...)
	return f
}

func (f fake) tell(t *testing.T, settings ...string) {
	t.Helper()
	if err := os.WriteFile(f.settings, []byte(strings.Join(settings, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
}

// quick is a plan for a driver that sleeps a thousandth of the simulated time.
func quick() Plan {
	p := DefaultPlan()
	p.Settle, p.Heat, p.Warmup, p.Stall, p.Limit = 5*time.Millisecond, 5*time.Millisecond, 2*time.Second, time.Minute, 10*time.Minute
	return p
}

func target(i int) Target {
	return Target{Driver: "580.159.04", Device: gpu.Device{ID: fakecuda.UUID(i), Model: "NVIDIA H200", PowerLimitW: new(int64(700)), ECC: new(true)}}
}

func TestSession(t *testing.T) {
	t.Parallel()
	f := newFake(t, "slow.1=1.3")
	var said []string
	a := f.Session(context.Background(), target(0), quick(), func(p Progress) {
		if len(said) == 0 || said[len(said)-1] != p.Doing {
			said = append(said, p.Doing)
		}
	})
	if a.Partial {
		t.Fatalf("partial: %s", a.Problem)
	}
	if diff := cmp.Diff([]string{"compiling fill", "compiling sum", "compiling wgmma1", "warming up", "class A",
		"compiling triad1", "class B", "class C", "compiling gather1", "class D", "ending"}, said); diff != "" {
		t.Errorf("progress (-want +got)\n%s", diff)
	}
	if !strings.HasPrefix(a.Key, "wgmma1/700W/ecc/r580/") || a.CUDA != "13.0" || !a.Warmup.Steady {
		t.Errorf("key %q, CUDA %q, warm-up %+v", a.Key, a.CUDA, a.Warmup)
	}
	b := f.Session(context.Background(), target(1), quick(), nil)
	if b.Partial || b.Key != a.Key || len(b.Apps) != 4 {
		t.Fatalf("the slower GPU: %+v", b)
	}
	for i, app := range a.Apps {
		if !app.Converged || app.CI > 0.003 || len(app.Windows) < 20 || app.LimitedBy != LimitUnknown || app.Slow {
			t.Errorf("class %s: converged %v, CI %v, %d windows, limited by %s, slow %v", app.App, app.Converged, app.CI, len(app.Windows), app.LimitedBy, app.Slow)
		}
		if ratio := b.Apps[i].Ms / app.Ms; math.Abs(ratio-1.3) > 0.006 {
			t.Errorf("class %s: the slower GPU takes %.4f times as long, want 1.3", app.App, ratio)
		}
		if app.App != pal.ClassB && (app.Share <= 0.2 || app.Share > 1) {
			t.Errorf("class %s: %v %s is %v of the peak", app.App, app.Rate, app.Unit, app.Share)
		}
		if app.Ms < 20 || app.Ms > 200 {
			t.Errorf("class %s: a unit takes %v ms, want about 80", app.App, app.Ms)
		}
	}
	m, ok := a.Measurement()
	if !ok || m.Key != a.Key || m.Times[pal.ClassC] != a.Apps[2].Ms {
		t.Errorf("measurement %+v, %v", m, ok)
	}
}

// If the driver refuses the strongest kernel, the next one is measured, with a warning.
func TestKernelThatIsRefused(t *testing.T) {
	t.Parallel()
	p := quick()
	p.Classes = []pal.AppClass{pal.ClassA}
	r := newFake(t, "jit.refuse=pal_wgmma").Session(context.Background(), target(0), p, nil)
	if r.Partial || !strings.HasPrefix(r.Key, "mma1/") || len(r.Warnings) == 0 {
		t.Errorf("partial %v %q, key %q, warnings %q", r.Partial, r.Problem, r.Key, r.Warnings)
	}
}

// If the driver's compiler hangs or crashes, the session ends and names the kernel.
func TestCompilerThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"jit.hang", "jit.crash"} {
		f := newFake(t, how+"=pal_wgmma")
		p := quick() // the hang is longer than a worker may take to start, even on a busy machine
		p.Start = 4 * time.Second
		r := f.Session(context.Background(), target(0), p, nil)
		if !r.Partial || !strings.HasPrefix(r.Problem, `compiling kernel "wgmma1": `) {
			t.Errorf("%s: partial %v %q", how, r.Partial, r.Problem)
		}
	}
}

// A whole session whose kernels ptxas compiles, instead of the driver.
func TestSessionWithCompiler(t *testing.T) {
	t.Parallel()
	f := newFake(t, "ptxas="+assembler(t))
	r := f.Session(context.Background(), target(0), quick(), nil)
	if r.Partial || len(r.Apps) != 4 || !strings.HasPrefix(r.Key, "wgmma1/") {
		t.Fatalf("partial %v %q, key %q, %d classes", r.Partial, r.Problem, r.Key, len(r.Apps))
	}
	for _, k := range []string{idWGMMA, idTriad, idGather, idFill, idSum} {
		if r.Compile[k] <= 0 {
			t.Errorf("compiling %s took %v s", k, r.Compile[k])
		}
	}
}

// Which speed counts as slow depends on the model's published rates, unless the power cap explains it.
func TestSoundGPUsOfLesserModelsAreNotSlow(t *testing.T) {
	k := computeKernels()[0]
	for _, tc := range []struct {
		model string
		sms   int
		by    Limit
		rate  float64
		slow  bool
	}{
		{"NVIDIA H20", 78, LimitNone, 133, false}, // 90 % of its published peak
		{"NVIDIA H20", 78, LimitNone, 40, true},
		{"NVIDIA H100 PCIe", 114, LimitPower, 280, false},
		{"NVIDIA H100 PCIe", 114, LimitUnknown, 280, false},
		{"NVIDIA H100 PCIe", 114, LimitNone, 280, true},
		{"NVIDIA H100 PCIe", 114, LimitThermal, 280, true},
		{"NVIDIA X1", 114, LimitNone, 280, true},
	} {
		dev := cuda.Device{Name: tc.model, Major: 9, SMs: tc.sms, ClockMHz: 1755}
		r := &childReady{Class: pal.ClassA, Peak: k.peak(dev, 1755) / k.scale, Expected: k.expected, ClockMHz: 1755}
		a := App{Rate: tc.rate, LimitedBy: tc.by}
		if problem := a.judge(r, 0, slowBelow(r, a.LimitedBy)); a.Slow != tc.slow {
			t.Errorf("%s, limited by %s, %v TFLOP/s: slow %v (%s)", tc.model, tc.by, tc.rate, a.Slow, problem)
		}
	}
}

// For a GPU that shares the processor's memory, CUDA's memory clock is not the clock of the memory.
// GB10 reports twice its 273 GB/s, and Orin a fifth of its 205. No bound follows from it.
func TestSharedMemoryHasNoBound(t *testing.T) {
	t.Parallel()
	for _, settings := range [][]string{
		{"name=NVIDIA GB10", "arch=121", "attr.13=2418000", "sms=48", "attr.36=8533000", "attr.37=256", "attr.18=1",
			"rate.pal_mma=90e12", "rate.pal_triad=225e9", "rate.pal_gather=1e9"},
		{"name=Orin", "arch=87", "attr.13=1300000", "sms=16", "attr.36=1300000", "attr.37=128", "attr.18=1",
			"rate.pal_mma=36e12", "rate.pal_triad=170e9", "rate.pal_gather=1e9"},
	} {
		r := newFake(t, settings...).Session(context.Background(), target(0), quick(), nil)
		slow := slices.ContainsFunc(r.Apps, func(a App) bool { return a.Slow })
		if r.Partial || slow || len(r.Apps) != pal.NumClasses {
			t.Errorf("%s: partial %q, slow %v, %d classes; %q", settings[0], r.Problem, slow, len(r.Apps), r.Warnings)
		}
	}
}

func TestImplausiblyFastIsRefused(t *testing.T) {
	t.Parallel()
	f := newFake(t, "slow.0=0.3")
	r := f.Session(context.Background(), target(0), quick(), nil)
	for _, a := range r.Apps {
		if a.App == pal.ClassA || a.App == pal.ClassC {
			t.Errorf("class %s at %v %s is accepted", a.App, a.Rate, a.Unit)
		}
	}
	if !strings.Contains(strings.Join(r.Warnings, "\n"), "is not plausible: the hardware cannot exceed 1071") {
		t.Errorf("warnings %q", r.Warnings)
	}
}

// A session without class A is incomplete, and the next one comes sooner than in a week.
// Losing another class to an implausible rate has no such effect.
func TestSessionWithoutClassA(t *testing.T) {
	t.Parallel()
	session := func(setting string) Result {
		return newFake(t, setting).Session(context.Background(), target(0), quick(), nil)
	}
	r := session("rate.pal_wgmma=9e15")
	if want := "class A could not be measured: "; !r.Partial || !strings.HasPrefix(r.Problem, want) || !strings.Contains(r.Problem, "not plausible") {
		t.Errorf("partial %v, %q; want %q and why", r.Partial, r.Problem, want)
	}
	if r := session("rate.pal_triad=9e12"); r.Partial || len(r.Apps) == 0 || r.Apps[0].App != pal.ClassA {
		t.Errorf("without class C: partial %v %q, %d classes", r.Partial, r.Problem, len(r.Apps))
	}
	s, now := DefaultSchedule(), time.Now()
	rec := record{}
	r.Started = now
	rec.accept(r, identity{})
	idle := condition{healthy: true, idleSince: now.Add(-time.Hour)}
	if wait := s.due(now.Add(s.Gap+time.Minute), rec, identity{}, idle); wait != "" {
		t.Errorf("%s after a session without class A: %s; want another", s.Gap+time.Minute, wait)
	}
}

// If a GPU is too noisy for the precision, it is measured until its time is up, with a warning.
func TestTimeLimitEndsANoisySession(t *testing.T) {
	t.Parallel()
	f := newFake(t, "noise=0.3")
	p := quick()
	p.Limit, p.Warmup, p.Classes = 2*time.Second, 20*time.Millisecond, []pal.AppClass{pal.ClassA}
	took := patience.Stopwatch()
	r := f.Session(context.Background(), target(0), p, nil)
	if took := took(); took > 4*p.Limit {
		t.Errorf("a session of at most %s took %s", p.Limit, took)
	}
	if r.Partial || r.Apps[0].Converged || !strings.Contains(strings.Join(r.Warnings, "\n"), "class A: the 95 % confidence interval of the median is at least ±") {
		t.Errorf("converged %v, partial %q, warnings %q", r.Apps[0].Converged, r.Problem, r.Warnings)
	}
}

// A warm-up that never ends leaves half of the time for measuring.
func TestWarmUpLongerThanTheSession(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	p := quick()
	p.Limit, p.Warmup, p.Settle, p.Classes = 5*time.Second, time.Hour, time.Hour, []pal.AppClass{pal.ClassA}
	ctx, cancel := patience.Context(t.Context(), patience.Long)
	defer cancel()
	if r := f.Session(ctx, target(0), p, nil); r.Partial || len(r.Apps[0].Windows) < p.MinWindows {
		t.Errorf("partial %q, warnings %q", r.Problem, r.Warnings)
	}
}

func TestKernelFallsBack(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ arch, kernel string }{{"80", "mma1"}, {"89", "mma1"}, {"70", "ffma1"}, {"100", "mma1"}, {"120", "mma1"}} {
		f := newFake(t, "arch="+tc.arch)
		tg := target(0)
		tg.Device.PowerLimitW, tg.Device.ECC, tg.Driver = nil, nil, ""
		r := f.Session(context.Background(), tg, quick(), nil)
		if r.Partial || !strings.HasPrefix(r.Key, tc.kernel+"/?W/ecc?/r?/") || len(r.Apps) != 4 {
			t.Errorf("architecture %s: key %q, %d classes, %s", tc.arch, r.Key, len(r.Apps), r.Problem)
		}
	}
}

// NVML's UUID of a Jetson lacks the prefix that CUDA's has.
func TestUUIDWithoutPrefix(t *testing.T) {
	t.Parallel()
	tg, p := target(0), quick()
	tg.Device.ID, p.Classes = strings.TrimPrefix(tg.Device.ID, "GPU-"), []pal.AppClass{pal.ClassA}
	if r := newFake(t).Session(context.Background(), tg, p, nil); r.Partial || len(r.Apps) != 1 || r.GPU != tg.Device.ID {
		t.Errorf("GPU %s, partial %q, %d classes", r.GPU, r.Problem, len(r.Apps))
	}
}

func TestSessionFailures(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		settings []string
		want     string
		apps     int // number of classes that are kept
	}{
		{"out of memory", []string{"fail=oom"}, "preparing application class B: allocating", 1},
		{"kernel hangs", []string{"fail=hang", "fail.after=100"}, "the GPU did not answer: a kernel or the driver hangs", 0},
		{"device lost", []string{"fail=lost", "fail.after=3"}, "CUDA_ERROR_LAUNCH_FAILED (719)", 0},
		{"device lost in the middle", []string{"fail=lost", "fail.kernel=pal_gather"}, "class D: running application class D: launching a kernel: CUDA_ERROR_LAUNCH_FAILED (719)", 3},
		{"driver too old for the PTX", []string{"fail=too-new"}, "the GPU or the driver is too old for this kernel", 0},
		{"PTX does not compile", []string{"fail=jit"}, "ptxas: line 7; fatal: syntax error", 0},
		{"architecture too old", []string{"arch=60"}, "compute capability 6.0 is too old", 0},
		{"compiler crashes at all", []string{"jit.crash=pal_"}, `compiling kernel "fill": the measuring process ended`, 0},
		{"in exclusive use", []string{"fail=busy"}, "the GPU is in use in exclusive mode", 0},
		{"fabric not ready", []string{"fail=not-ready"}, "is the fabric manager running?", 0},
		{"no device", []string{"fail=no-device"}, "this process sees no GPU", 0},
		{"another GPU", []string{"gpus=0"}, `the CUDA driver has no GPU "GPU-01010101-`, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, tc.settings...)
			p := quick()
			if tc.settings[0] == "fail=hang" {
				p.Stall = 500 * time.Millisecond
			}
			r := f.Session(context.Background(), target(0), p, nil)
			if !r.Partial || !strings.Contains(r.Problem, tc.want) {
				t.Errorf("partial %v, problem %q, want %q", r.Partial, r.Problem, tc.want)
			}
			if len(r.Apps) < tc.apps {
				t.Errorf("%d classes kept, want at least %d", len(r.Apps), tc.apps)
			}
		})
	}
}

func TestWrongResultsAreDropped(t *testing.T) {
	t.Parallel()
	f := newFake(t, "fail=corrupt", "fail.kernel=pal_gather")
	p := quick()
	p.Limit, p.Classes = 3*time.Second, []pal.AppClass{pal.ClassA, pal.ClassD}
	r := f.Session(context.Background(), target(0), p, nil)
	if !strings.Contains(strings.Join(r.Warnings, "\n"), "the GPU computes wrongly (silent data corruption)") {
		t.Errorf("warnings %q", r.Warnings)
	}
	for _, a := range r.Apps {
		if wrong := a.App == pal.ClassD; wrong != slices.ContainsFunc(a.Windows, func(w Repetition) bool { return w.Dropped == sdcDropped }) {
			t.Errorf("class %s: windows dropped: %v, want %v", a.App, !wrong, wrong)
		}
	}
}

// Reserve must get the GPU at once: cancelling kills the process, which is gone when
// Session returns, even if it hung.
func TestCancelKillsTheProcess(t *testing.T) {
	before := children(t)
	for _, settings := range [][]string{{"scale=1"}, {"fail=hang", "fail.after=8"}} {
		f := newFake(t, settings...)
		ctx, cancel := context.WithCancel(context.Background())
		var since func() time.Duration // time since the cancellation
		r := f.Session(ctx, target(0), DefaultPlan(), func(Progress) {
			if since == nil {
				since = patience.Stopwatch()
				cancel()
			}
		})
		cancel()
		if took := since(); took > 2*time.Second {
			t.Errorf("%v: gone after %s", settings, took)
		}
		if !r.Partial || r.Problem == "" || len(r.Apps) > 0 {
			t.Errorf("%v: %+v", settings, r)
		}
		if pids := slices.DeleteFunc(children(t), func(pid string) bool { return slices.Contains(before, pid) }); len(pids) > 0 {
			t.Errorf("%v: processes %v are left", settings, pids)
		}
	}
}

// children returns this process's living children.
func children(t *testing.T) []string {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(tasks) == 0 {
		t.Skip("the kernel does not list children")
	}
	var pids []string
	for _, path := range tasks {
		data, err := os.ReadFile(path)
		if err == nil {
			pids = append(pids, strings.Fields(string(data))...)
		}
	}
	return pids
}

// The child ends with a parent that cannot clean up.
func TestChildDoesNotOutliveItsInput(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c, err := f.start(context.Background(), fakecuda.UUID(0), quick())
	if err != nil {
		t.Fatal(err)
	}
	if m, err := c.next(context.Background(), time.Minute); err != nil || m.Compiling != idFill {
		t.Fatalf("first message %+v, %v", m, err)
	}
	c.order("nonsense")
	c.order("run A")
	for range 10 { // two messages for each of three kernels, then the GPU, the class, two windows
		if _, err := c.next(context.Background(), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	c.close(false)
	if state := c.cmd.ProcessState; !state.Success() {
		t.Errorf("the child ended with %s (%v)", state, state.Sys().(syscall.WaitStatus).Signal())
	}
}
