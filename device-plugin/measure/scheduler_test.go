// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda/fakecuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/statedir"
	"github.com/nomad-pal/nomad-pal/internal/patience"
	"github.com/nomad-pal/nomad-pal/internal/testlog"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

func TestDue(t *testing.T) {
	now := time.Date(2026, 1, 20, 12, 0, 0, 0, time.UTC)
	id := identity{Model: "H200", Driver: "580.1"}
	idle := condition{healthy: true, idleSince: now.Add(-time.Hour)}
	asked := condition{healthy: true, idleSince: idle.idleSince, asked: true}
	ago := func(d time.Duration) record { return record{Identity: id, Measured: now.Add(-d), Tried: now.Add(-d)} }
	week := 168 * time.Hour
	with := func(r record, f func(*record)) record { f(&r); return r }
	for _, tc := range []struct {
		name string
		mode Mode
		r    record
		c    condition
		want string
	}{
		{"first sight", Idle, record{}, idle, ""},
		{"in use", Idle, record{}, condition{healthy: true}, "in use"},
		{"first sight, not its node's turn", Idle, record{}, condition{healthy: true, idleSince: idle.idleSince, early: true}, "not its node's turn"},
		{"asked, not its node's turn", Manual, record{}, condition{healthy: true, idleSince: idle.idleSince, early: true, asked: true}, ""},
		{"just idle", Idle, record{}, condition{healthy: true, idleSince: now.Add(-time.Second)}, "not idle for long enough"},
		{"unhealthy", Idle, record{}, condition{idleSince: idle.idleSince}, "unhealthy"},
		{"measured yesterday", Idle, ago(24 * time.Hour), idle, "measured"},
		{"measured long ago", Idle, ago(week * 12 / 10), idle, ""},
		{"measured with another driver", Idle, with(ago(24*time.Hour), func(r *record) { r.Identity.Driver = "570.1" }), idle, ""},
		{"another speed a minute ago", Idle, with(ago(time.Minute), func(r *record) { r.Alarm = true }), idle, "tried a short while ago"},
		{"another speed 11 minutes ago", Idle, with(ago(11*time.Minute), func(r *record) { r.Alarm = true }), idle, ""},
		{"failed 50 minutes ago", Idle, record{Tried: now.Add(-50 * time.Minute), Problem: "x", Failures: 1}, idle, "tried a short while ago"},
		{"failed 3 times, 3 hours ago", Idle, record{Tried: now.Add(-3 * time.Hour), Problem: "x", Failures: 3}, idle, "tried a short while ago"},
		{"failed 99 times, a day ago", Idle, record{Tried: now.Add(-24 * time.Hour), Problem: "x", Failures: 99}, idle, ""},
		{"went down 50 minutes ago, asked", Idle, record{Tried: now.Add(-50 * time.Minute), Problem: wentDown, Failures: 1}, asked, wentDown},
		{"went down an hour ago", Idle, record{Tried: now.Add(-time.Hour), Problem: wentDown, Failures: 1}, idle, ""},
		{"off", Off, record{}, condition{healthy: true, idleSince: idle.idleSince, asked: true}, "not requested"},
		{"manual", Manual, record{}, idle, "not requested"},
		{"manual, asked, just measured", Manual, ago(time.Minute), condition{healthy: true, idleSince: idle.idleSince, asked: true}, ""},
		{"asked while in use", Manual, record{}, condition{healthy: true, asked: true}, "in use"},
	} {
		s := DefaultSchedule()
		s.Mode = tc.mode
		if got := s.due(now, tc.r, id, tc.c); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestAccept(t *testing.T) {
	at := time.Date(2026, 1, 20, 12, 0, 0, 0, time.UTC)
	id := identity{Model: "H200", Driver: "580.1"}
	session := func(ms float64) Result {
		at = at.Add(time.Hour)
		return Result{GPU: "g", Key: "k", Started: at, Apps: []App{{App: pal.ClassA, Ms: ms, CI: 0.002}}}
	}
	var r record
	steps := []struct {
		ms    float64
		alarm bool
	}{{80, false}, {80.1, false}, {82, true}, {84, false}, {84, false}, {82, true}, {82, false}}
	for _, s := range steps {
		if r.accept(session(s.ms), id); r.Alarm != s.alarm || r.Times[pal.ClassA] != s.ms {
			t.Errorf("session of %v ms: alarm %v, want %v; %+v", s.ms, r.Alarm, s.alarm, r)
		}
	}
	broken := session(99)
	broken.Partial, broken.Problem = true, "lost"
	r.accept(broken, id)
	cut := session(99)
	cut.Partial, cut.Problem = true, interrupted
	r.accept(cut, id)
	if r.Failures != 1 || r.Problem == interrupted || r.Times[pal.ClassA] != 82 || r.Alarm {
		t.Errorf("after a partial session: %+v", r)
	}
	// Times under another key or driver are not comparable.
	rekeyed := session(99)
	rekeyed.Key = "k2"
	if r.accept(rekeyed, id); r.Alarm || r.Key != "k2" {
		t.Errorf("another key: %+v", r)
	}
	other := identity{Model: "H200", Driver: "590.1"}
	if r.accept(session(70), other); r.Alarm || r.Failures != 0 {
		t.Errorf("another driver: %+v", r)
	}
	if _, ok := r.measurement("g", id); ok {
		t.Error("a result of another driver is published")
	}
}

// node is a scheduler on a machine with the fake driver and its own /proc.
type node struct {
	*Scheduler
	t    *testing.T
	inv  gpu.Inventory
	proc string
	stop func()
}

func newNode(t *testing.T, f fake, change func(*Schedule)) *node {
	t.Helper()
	return newNodeLogging(t, f, hclog.NewNullLogger(), change)
}

func newNodeLogging(t *testing.T, f fake, log hclog.Logger, change func(*Schedule)) *node {
	t.Helper()
	cfg := DefaultSchedule()
	cfg.Plan, cfg.Tick, cfg.IdleFor, cfg.StateDir = quick(), 5*time.Millisecond, 10*time.Millisecond, statedir.Dir(t.TempDir())
	if change != nil {
		change(&cfg)
	}
	if f.Allocated == nil {
		f.Allocated = free
	}
	s, err := NewScheduler(cfg, f.Runner, log)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{Scheduler: s, t: t, inv: twoGPUs().inv, proc: t.TempDir()}
	s.run.proc = n.proc
	n.observe()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	n.stop = func() { cancel(); <-done }
	t.Cleanup(n.stop)
	return n
}

// observe passes a scan to the scheduler. It returns the devices with the times filled in.
func (n *node) observe() []gpu.Device {
	inv := n.inv
	inv.Devices = append([]gpu.Device(nil), n.inv.Devices...)
	n.Observe(&inv, nil)
	return inv.Devices
}

func (n *node) until(what string, ok func() bool) {
	n.t.Helper()
	patience.Eventually(n.t, what, ok)
}

func (n *node) measured(i int) bool { return len(n.observe()[i].Measured.Times) == pal.NumClasses }

// ask starts a task that holds a GPU and asks for its measurement.
func (n *node) ask(i int) {
	n.t.Helper()
	ticket, err := n.Reserve([]string{fakecuda.UUID(i)}, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	showProcess(n.t, n.proc, "4711", attr.EnvReservation+"="+ticket+"\x00"+attr.EnvMeasure+"=1")
}

// busy reports whether a session of the GPU is running.
func (n *node) busy(i int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.running[fakecuda.UUID(i)] != nil
}

func TestSchedulerMeasuresAtFirstSightAndRemembers(t *testing.T) {
	t.Parallel()
	f := newFake(t, "slow.1=1.2")
	n := newNode(t, f, nil)
	n.until("both GPUs measured", func() bool { return n.measured(0) && n.measured(1) })
	select {
	case <-n.Changed():
	case <-patience.Over(t):
		t.Error("no word of the new results")
	}
	before := n.observe()
	if r := before[1].Measured.Times[pal.ClassA] / before[0].Measured.Times[pal.ClassA]; r < 1.19 || r > 1.21 || before[0].Measured.Key != before[1].Measured.Key {
		t.Errorf("the slower GPU takes %.3f times as long (keys %q and %q)", r, before[0].Measured.Key, before[1].Measured.Key)
	}
	n.stop()

	// The plugin restarts on a machine where measuring would fail.
	f.tell(t, "fail=no-device")
	again := newNode(t, f, func(s *Schedule) { s.StateDir = n.cfg.StateDir })
	if diff := cmp.Diff(before, again.observe()); diff != "" {
		t.Errorf("after a restart (-before +after)\n%s", diff)
	}
	// Another VBIOS, another driver: the results are out of date.
	for i := range again.inv.Devices {
		again.inv.Devices[i].Chip.VBIOS = "96.00.99"
	}
	if got := again.observe(); len(got[0].Measured.Times) != 0 {
		t.Errorf("with another VBIOS: %+v", got[0])
	}
	again.inv.DriverVersion = "590.10.01"
	if got := again.observe(); len(got[0].Measured.Times) != 0 || got[0].Measured.Key != "" {
		t.Errorf("with another driver: %+v", got[0])
	}
	again.until("an attempt with the new driver", func() bool {
		again.mu.Lock()
		defer again.mu.Unlock()
		return again.records[fakecuda.UUID(0)].Failures > 0
	})
}

// A GPU that is certainly slow is reported as slow, calibrated or not.
func TestSchedulerTellsSlowGPUs(t *testing.T) {
	t.Parallel()
	n := newNode(t, newFake(t, "slow.1=2"), nil)
	n.until("both GPUs measured", func() bool { return n.measured(0) && n.measured(1) })
	if ds := n.observe(); ds[0].Signals.Slow || !ds[1].Signals.Slow {
		t.Errorf("slow: %v and %v, want the second", ds[0].Signals.Slow, ds[1].Signals.Slow)
	}
}

// On some machines the power supply trips when all GPUs work: such a machine boots,
// measures, and trips again. After the boot, the plugin knows which sessions had begun.
func TestMeasuringThatTakesTheMachineDownIsNotTriedAgainAtOnce(t *testing.T) {
	t.Parallel()
	n := newNode(t, newFake(t, "scale=1"), nil)
	n.until("sessions begun", func() bool { return n.busy(0) && n.busy(1) })
	state, err := os.ReadFile(filepath.Join(string(n.cfg.StateDir), recordsFile))
	if err != nil {
		t.Fatal(err)
	}
	n.stop()
	var log testlog.Buffer
	again := newNodeLogging(t, newFake(t), hclog.New(&hclog.LoggerOptions{Output: &log}), func(s *Schedule) {
		if err := os.WriteFile(filepath.Join(string(s.StateDir), recordsFile), state, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if text := log.String(); strings.Count(text, "went down while the GPU was measured") != 2 || !strings.Contains(text, "in 1h0m0s at the earliest") {
		t.Errorf("log %q", text)
	}
	again.mu.Lock()
	defer again.mu.Unlock()
	now := time.Now()
	for _, later := range []struct {
		after time.Duration
		want  int
	}{{time.Minute, 0}, {2 * time.Hour, 2}} {
		if got := again.wanted(now.Add(later.after)); len(got) != later.want {
			t.Errorf("after %s, GPUs %v would be measured, want %d", later.after, got, later.want)
		}
	}
}

// The end of the plugin does not count as a crash, even if its sessions do not end with it.
func TestEndOfThePluginIsNoCrash(t *testing.T) {
	cfg := DefaultSchedule()
	cfg.StateDir = statedir.Dir(t.TempDir())
	s, err := NewScheduler(cfg, Runner{}, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	s.run.proc = t.TempDir()
	s.begin(time.Now(), []Target{target(0)})
	s.running[fakecuda.UUID(0)] = &running{cancel: func() {}, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Run(ctx)
	again, err := NewScheduler(cfg, Runner{}, hclog.NewNullLogger())
	if r := again.records[fakecuda.UUID(0)]; err != nil || r.Failures != 0 || r.Problem != "" {
		t.Errorf("record %+v, error %v", r, err)
	}
}

func TestReserveEndsMeasuring(t *testing.T) {
	t.Parallel()
	f := newFake(t, "scale=1")
	var held atomic.Bool
	var asked atomic.Int32
	f.Allocated = func(context.Context, []string) (map[string]string, error) {
		if !held.Load() {
			return nil, nil
		}
		asked.Add(1)
		return map[string]string{fakecuda.UUID(0): `job "train" in namespace "default"`}, nil
	}
	n := newNode(t, f, func(s *Schedule) { s.Retry, s.Recheck = 0, time.Millisecond })
	n.until("sessions begun", func() bool { return n.busy(0) && n.busy(1) })
	took := patience.Stopwatch()
	held.Store(true)
	if _, err := n.Reserve([]string{fakecuda.UUID(0)}, nil); err != nil {
		t.Fatal(err)
	}
	if took := took(); took > reserveWait {
		t.Errorf("Reserve took %s", took)
	}
	n.until("the session's end", func() bool { return !n.busy(0) })
	if !n.busy(1) {
		t.Error("the other GPU's session has ended too")
	}
	// The GPU is free again only once Nomad says that the allocation has ended: nothing
	// else shows its task.
	n.until("asked Nomad again and again", func() bool { return asked.Load() > 20 })
	if n.busy(0) {
		t.Error("a GPU is measured although an allocation holds it")
	}
	f.tell(t, "scale=0.001")
	held.Store(false)
	n.until("measured after the task", func() bool { return n.measured(0) })
}

// The scheduler never measures a GPU that is reserved, in use according to the driver, or
// unhealthy.
func TestSchedulerLeavesGPUsInUseAlone(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	busy := twoGPUs()
	busy.samples[fakecuda.UUID(1)] = gpu.Sample{GPUPercent: new(int64(3))}
	f.Sample = busy.Sample
	n := newNode(t, f, nil)
	n.until("the idle GPU measured", func() bool { return n.measured(0) })
	n.stop() // from here on the test calls look itself
	now := time.Now()
	n.look(now)
	if got := n.next(now.Add(time.Hour)); len(got) != 0 {
		t.Errorf("sessions would begin on %+v", got)
	}
	busy.samples[fakecuda.UUID(1)] = gpu.Sample{}
	n.look(now)
	n.mu.Lock()
	n.unhealthy = map[string]bool{fakecuda.UUID(1): true}
	n.mu.Unlock()
	if got := n.next(now.Add(time.Hour)); len(got) != 0 {
		t.Errorf("sessions would begin on an unhealthy GPU: %+v", got)
	}
}

// Reserve between look and next: the GPU was idle a moment ago.
func TestReserveJustBeforeASessionBegins(t *testing.T) {
	cfg := DefaultSchedule()
	s, err := NewScheduler(cfg, Runner{}, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	s.run.proc = t.TempDir()
	inv := twoGPUs().inv
	s.Observe(&inv, nil)
	now := time.Now()
	s.look(now)
	later := now.Add(2 * cfg.IdleFor)
	if got := s.next(later); len(got) != 2 {
		t.Fatalf("%d sessions would begin, want 2", len(got))
	}
	if _, err := s.Reserve([]string{fakecuda.UUID(0)}, nil); err != nil {
		t.Fatal(err)
	}
	got := s.next(later)
	if len(got) != 1 || got[0].Device.ID != fakecuda.UUID(1) {
		t.Errorf("after Reserve, sessions would begin on %+v", got)
	}
}

// A rollout starts all plugins at once. Their nodes take turns, and read no /proc before
// their turn.
func TestNodesTakeTurnsAfterAStart(t *testing.T) {
	cfg := DefaultSchedule()
	cfg.Jitter = time.Hour
	turns := map[time.Duration]bool{}
	for _, first := range []string{"GPU-1", "GPU-2", "GPU-3"} {
		s, err := NewScheduler(cfg, Runner{}, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		s.Observe(&gpu.Inventory{Devices: []gpu.Device{{ID: first}}}, nil)
		asked := 0
		s.run.Sample = func([]string) map[string]gpu.Sample { asked++; return nil }
		s.run.proc = t.TempDir()
		for d := time.Duration(0); d <= time.Hour+cfg.IdleFor; d += 10 * time.Second {
			s.look(s.begun.Add(d))
			if len(s.next(s.begun.Add(d))) == 0 {
				continue
			}
			if want := int(cfg.IdleFor/(10*time.Second)) + 1; asked != want {
				t.Errorf("%s: looked %d times for use, want %d", first, asked, want)
			}
			turns[d] = true
			break
		}
	}
	if len(turns) != 3 {
		t.Errorf("the nodes begin at %v, want three different times", turns)
	}
}

// After its measurement, a GPU is not checked for days. An idle check from last week does
// not count now.
func TestMeasuredGPUsAreNotLookedAt(t *testing.T) {
	cfg := DefaultSchedule()
	s, err := NewScheduler(cfg, Runner{}, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	inv := twoGPUs().inv
	s.Observe(&inv, nil)
	asked := 0
	s.run.Sample = func([]string) map[string]gpu.Sample { asked++; return nil }
	s.run.proc = t.TempDir()
	now := time.Now()
	s.look(now)
	for i, d := range inv.Devices {
		s.records[d.ID] = record{Identity: identityOf(d, inv.DriverVersion), Measured: now.Add(-time.Duration(i) * 24 * time.Hour), Tried: now}
	}
	for d := time.Minute; d < 100*time.Hour; d += time.Hour {
		s.look(now.Add(d))
	}
	if asked != 1 || len(s.idleSince) != 0 {
		t.Errorf("looked %d times, idle %v", asked, s.idleSince)
	}
	// Once one GPU is due, its neighbour is due, too, so that both are measured together.
	later := now.Add(190 * time.Hour)
	s.look(later)
	if got := s.next(later); len(got) != 0 {
		t.Errorf("begins at once: %+v", got)
	}
	if got := s.next(later.Add(cfg.IdleFor)); len(got) != 2 {
		t.Errorf("%d sessions would begin, want 2", len(got))
	}
}

// The driver destroys the contexts of eight GPUs one after the other.
func TestReserveWaitsForTheTeardown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewScheduler(DefaultSchedule(), Runner{}, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for i := range 8 {
			r := &running{done: make(chan struct{})}
			r.cancel = func() { time.AfterFunc(time.Duration(i+1)*2*time.Second, func() { close(r.done) }) }
			id := fakecuda.UUID(i)
			ids, s.running[id] = append(ids, id), r
		}
		if _, err := s.Reserve(ids, nil); err != nil {
			t.Error(err)
		}
	})
}

// A measuring process that hangs in the driver cannot be killed, and no task could use its
// GPU. So the GPU is unhealthy until the process has ended.
func TestProcessThatCannotBeKilledMakesItsGPUUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewScheduler(DefaultSchedule(), Runner{}, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		hung, tearing := fakecuda.UUID(0), fakecuda.UUID(1)
		s.running[hung] = &running{cancel: func() {}, done: make(chan struct{})}
		s.running[tearing] = &running{cancel: func() {}, done: make(chan struct{}), ending: time.Now().Add(time.Second)}
		if _, err := s.Reserve([]string{hung}, nil); err == nil || !strings.Contains(err.Error(), "was killed but has not ended") {
			t.Errorf("a session that never ends: %v", err)
		}
		select {
		case <-s.Changed():
		default:
			t.Error("the node is not scanned at once")
		}
		inv := twoGPUs().inv
		s.Observe(&inv, nil)
		if !inv.Devices[0].Signals.Unanswered || inv.Devices[1].Signals.Unanswered {
			t.Errorf("signals %+v and %+v, want the first not to answer", inv.Devices[0].Signals, inv.Devices[1].Signals)
		}
	})
}

// The same happens when a session ends by itself, and no task is waiting.
func TestSessionTellsThatItEnds(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	held := filepath.Join(t.TempDir(), "held")
	if err := syscall.Mkfifo(held, 0o600); err != nil {
		t.Fatal(err)
	}
	// A process outside the child's process group keeps its output open.
	f.Self = append([]string{"sh", "-c", `setsid sh -c "read x < ` + held + `" & exec "$@"`, "sh"}, f.Self...)
	let, err := os.OpenFile(held, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { let.Close() })
	n := newNode(t, f, func(s *Schedule) { s.Plan.Classes = []pal.AppClass{pal.ClassA} })
	t.Cleanup(func() { // before the node stops
		if _, err := let.WriteString("\n\n\n\n"); err != nil {
			t.Error(err)
		}
	})
	n.until("the session's end told", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		r := n.running[fakecuda.UUID(0)]
		return r != nil && r.stuck(time.Now().Add(reserveWait))
	})
}

// A process that does not belong to Nomad starts to compute on a GPU that is being measured.
func TestMeasuringEndsForAProcessThatComes(t *testing.T) {
	t.Parallel()
	f := newFake(t, "scale=1")
	var came atomic.Bool
	f.Processes = func(ids []string) map[string][]int {
		out := map[string][]int{}
		for _, id := range ids {
			out[id] = nil
			if came.Load() && id == fakecuda.UUID(1) {
				out[id] = []int{4711}
			}
		}
		return out
	}
	n := newNode(t, f, nil)
	if err := os.MkdirAll(filepath.Join(n.proc, "4711"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.proc, "4711", "stat"), []byte("4711 (python) R 1 1 1"), 0o644); err != nil {
		t.Fatal(err)
	}
	n.until("sessions begun", func() bool { return n.busy(0) && n.busy(1) })
	came.Store(true)
	n.until("the session's end", func() bool { return !n.busy(1) })
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.records[fakecuda.UUID(1)]; r.Problem != "" || !r.Tried.IsZero() || n.running[fakecuda.UUID(0)] == nil {
		t.Errorf("an interruption counts: %+v; the other GPU's session goes on: %v", r, n.running[fakecuda.UUID(0)] != nil)
	}
}

// Warnings about the precision of an interrupted session help nobody.
func TestInterruptedSessionsWarnOfCorruptionOnly(t *testing.T) {
	for _, corrupt := range []bool{false, true} {
		var log bytes.Buffer
		s, err := NewScheduler(DefaultSchedule(), Runner{}, hclog.New(&hclog.LoggerOptions{Output: &log}))
		if err != nil {
			t.Fatal(err)
		}
		s.report(Result{Problem: interrupted, Partial: true, Corrupt: corrupt, Warnings: []string{"class B: "}}, false)
		if got := strings.Contains(log.String(), "WARN"); got != corrupt {
			t.Errorf("corrupt %v: warned %v:\n%s", corrupt, got, &log)
		}
	}
}

// A GPU that cannot be measured is left alone, and the node's attributes say why.
func TestUnsupportedGPUsAreLeftAlone(t *testing.T) {
	s, err := NewScheduler(DefaultSchedule(), Runner{}, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	s.run.proc = t.TempDir()
	inv := gpu.Inventory{Devices: []gpu.Device{{ID: "GPU-p100", Model: "Tesla P100-SXM2-16GB", Chip: gpu.Chip{ComputeMajor: 6}}, {ID: "GPU-h200", Model: "NVIDIA H200", Chip: gpu.Chip{ComputeMajor: 9}},
		{ID: "GPU-vgpu", Model: "NVIDIA A40-24Q", Chip: gpu.Chip{ComputeMajor: 8, Virtual: true}}}}
	s.Observe(&inv, nil)
	now := time.Now()
	s.look(now)
	if got := s.next(now.Add(time.Hour)); len(got) != 1 || got[0].Device.ID != "GPU-h200" {
		t.Errorf("sessions would begin on %+v", got)
	}
	for id, reason := range map[string]string{"GPU-p100": "compute capability 6.0 is too old", "GPU-vgpu": "a virtual GPU"} {
		if got := s.Accounts()[id].Unable; !strings.HasPrefix(got, reason) {
			t.Errorf("published: %q, want %q", got, reason)
		}
	}
}

func TestManualMode(t *testing.T) {
	t.Parallel()
	n := newNode(t, newFake(t), func(s *Schedule) { s.Mode = Manual })
	n.ask(1)
	n.until("the GPU measured whose task asks", func() bool { return n.measured(1) })
	if n.measured(0) {
		t.Error("a GPU was measured without a request")
	}
}

func TestOffPublishesNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t, newFake(t), nil)
	n.until("measured", func() bool { return n.measured(0) && n.measured(1) })
	n.stop()
	off := newNode(t, newFake(t), func(s *Schedule) { s.Mode, s.StateDir = Off, n.cfg.StateDir })
	if got := off.observe(); len(got[0].Measured.Times) != 0 {
		t.Errorf("%+v", got[0])
	}
}

func TestBadStateFile(t *testing.T) {
	cfg := DefaultSchedule()
	cfg.StateDir = statedir.Dir(t.TempDir())
	for content, want := range map[string]string{
		"{":              "unexpected end of JSON input",
		`{"format":"x"}`: `format is "x"`,
	} {
		if err := os.WriteFile(filepath.Join(string(cfg.StateDir), recordsFile), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := NewScheduler(cfg, Runner{}, hclog.NewNullLogger())
		if s == nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v", content, s != nil, err)
		}
	}
}

// A GPU that nothing seems to use may still belong to a task. If Nomad cannot tell, the plugin does
// not measure it, and the node's attributes say why.
func TestNothingIsMeasuredWithoutProof(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	var knows atomic.Bool
	var asked atomic.Int32
	f.Allocated = func(context.Context, []string) (map[string]string, error) {
		if asked.Add(1); !knows.Load() {
			return nil, errors.New("no answer")
		}
		return nil, nil
	}
	n := newNode(t, f, func(s *Schedule) { s.Recheck = time.Millisecond })
	n.until("asked Nomad again and again", func() bool { return asked.Load() > 10 })
	if n.busy(0) || n.busy(1) || n.measured(0) || n.measured(1) {
		t.Error("a GPU is measured although a task may hold it")
	}
	if got, want := n.Accounts()[fakecuda.UUID(0)].Waits, "no answer; let the plugin ask Nomad"; !strings.HasPrefix(got, want) {
		t.Errorf("published: %q, want %q", got, want)
	}
	knows.Store(true)
	n.until("measured", func() bool { return n.measured(0) && n.measured(1) })
	got := n.Accounts()[fakecuda.UUID(0)]
	if _, err := time.Parse(time.RFC3339, got.Last); err != nil || got.Waits != "" || got.Problem != "" || got.Provisional {
		t.Errorf("published after a session: %+v", got)
	}
}

// The plugin publishes why it does not measure a GPU that is due. A task that asks needs no proof
// that the GPU is free.
func TestGPUThatIsNotProvedFreeSaysSo(t *testing.T) {
	cfg := DefaultSchedule()
	cfg.Jitter, cfg.StateDir = 0, statedir.Dir(t.TempDir())
	s, err := NewScheduler(cfg, Runner{proc: t.TempDir(), Allocated: func(context.Context, []string) (map[string]string, error) {
		return nil, errors.New("no answer")
	}}, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	inv := twoGPUs().inv
	s.Observe(&inv, nil)
	asked, due := fakecuda.UUID(0), fakecuda.UUID(1)
	s.records[asked] = record{Asks: true}
	s.prove(t.Context(), time.Now(), []Target{{Device: inv.Devices[1]}})
	got := s.Accounts()
	if !strings.HasPrefix(got[due].Waits, "no answer") || got[asked].Waits != "" {
		t.Errorf("published: %+v", got)
	}
	s.records[due] = record{Identity: identityOf(inv.Devices[1], inv.DriverVersion), Measured: time.Now(), Tried: time.Now()}
	if got := s.Accounts()[due].Waits; got != "" {
		t.Errorf("measured: %q", got)
	}
}

// The same error is logged once, even if a broken connection names another port each time or the
// answer is very long.
func TestUnprovenIsSaidOnce(t *testing.T) {
	var out bytes.Buffer
	port := 40000
	s, err := NewScheduler(DefaultSchedule(), Runner{Allocated: func(context.Context, []string) (map[string]string, error) {
		port++
		return nil, fmt.Errorf("read tcp [::1]:%d->127.0.0.1:4646: reset by peer\n%s", port, strings.Repeat("<p>", 10000))
	}}, hclog.New(&hclog.LoggerOptions{Output: &out}))
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		s.prove(t.Context(), time.Now(), []Target{{Device: twoGPUs().inv.Devices[0]}})
	}
	if n := strings.Count(out.String(), "[WARN]"); n != 1 || out.Len() > 2000 || !strings.Contains(out.String(), "127.0.0.1:4646: reset by peer") {
		t.Errorf("%d warnings, %d bytes:\n%.2000s", n, out.Len(), out.String())
	}
}

// The plugin asks Nomad only once in a while about a GPU that an allocation has, not at each check.
func TestNomadIsAskedOnceInAWhile(t *testing.T) {
	for name, err := range map[string]error{"held": nil, "no answer": errors.New("x")} {
		cfg := DefaultSchedule()
		cfg.Jitter = 0
		asked := 0
		s, _ := NewScheduler(cfg, Runner{proc: t.TempDir(), Allocated: func(_ context.Context, ids []string) (map[string]string, error) {
			asked++
			return map[string]string{ids[0]: "j", ids[1]: "j"}, err
		}}, hclog.NewNullLogger())
		inv := twoGPUs().inv
		s.Observe(&inv, nil)
		now := time.Now()
		for end := now.Add(10 * time.Minute); now.Before(end); now = now.Add(cfg.Tick) {
			s.look(now)
			if got := s.prove(t.Context(), now, s.next(now)); len(got) != 0 {
				t.Fatalf("%s: sessions would begin on %+v", name, got)
			}
		}
		if asked < 8 || asked > 11 {
			t.Errorf("%s: asked %d times in ten minutes", name, asked)
		}
	}
}

// A task can order a measurement of the GPU that it has reserved. The GPU is measured once,
// in any mode and whatever Nomad says. GPUs of other tasks are left alone.
func TestTaskHasItsGPUMeasured(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.Allocated = func(context.Context, []string) (map[string]string, error) { return nil, errors.New("no answer") }
	n := newNode(t, f, func(s *Schedule) { s.Mode, s.Gather = Manual, 5*time.Millisecond })
	mine, err := n.Reserve([]string{fakecuda.UUID(1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := n.Reserve([]string{fakecuda.UUID(0)}, nil)
	if err != nil || other == mine {
		t.Fatalf("tickets %q and %q, error %v", mine, other, err)
	}
	showProcess(t, n.proc, "1", "NOMAD_PAL_RESERVATION="+other)
	showProcess(t, n.proc, "2", "NOMAD_PAL_MEASURE=1 NOMAD_PAL_RESERVATION="+mine)
	n.until("measured", func() bool { return n.measured(1) })
	got := n.Accounts()
	if a := got[fakecuda.UUID(1)]; a.Last == "" || a.Problem != "" || !a.Provisional {
		t.Errorf("published: %+v, want a provisional result", a)
	}
	if a := got[fakecuda.UUID(0)]; a.Last != "" || n.measured(0) {
		t.Errorf("the other task's GPU was measured: %+v", a)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.records[fakecuda.UUID(1)]; r.Asks || len(n.tickets(time.Now())) != 0 {
		t.Errorf("it would be measured again: %+v", r)
	}
}

// A task that has a part of a GPU ends the GPU's measurement, as any task does. But it
// cannot order one, because other tasks may have the other parts.
func TestTaskOnAPartHasNothingMeasured(t *testing.T) {
	cfg := DefaultSchedule()
	cfg.Mode = Manual
	proc, id := t.TempDir(), fakecuda.UUID(0)
	s, err := NewScheduler(cfg, Runner{proc: proc}, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	inv := twoGPUs().inv
	s.Observe(&inv, nil)
	for part, want := range map[bool]int{true: 0, false: 1} {
		ticket, err := s.Reserve([]string{id}, map[string]bool{id: part})
		if err != nil {
			t.Fatal(err)
		}
		showProcess(t, proc, "1", "NOMAD_PAL_MEASURE=1 NOMAD_PAL_RESERVATION="+ticket)
		now := time.Now()
		s.look(now) // a GPU is idle from the look that sees the request, not from the one after
		if got := s.next(now.Add(cfg.Gather)); len(got) != want {
			t.Errorf("part %v: sessions would begin on %d GPUs, want %d", part, len(got), want)
		}
	}
}

// A task asks for all GPUs of a node. One of them could be measured at once, because it was idle
// before; it waits, so that all are measured together.
func TestAskedGPUsAreMeasuredTogether(t *testing.T) {
	cfg := DefaultSchedule()
	s, err := NewScheduler(cfg, Runner{}, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	inv := twoGPUs().inv
	s.Observe(&inv, nil)
	now := time.Now()
	for i, idle := range []time.Duration{cfg.Gather, cfg.Gather / 2} {
		s.records[fakecuda.UUID(i)] = record{Asks: true}
		s.idleSince[fakecuda.UUID(i)] = now.Add(-idle)
	}
	for after, want := range map[time.Duration]int{0: 0, cfg.Gather / 2: 2} {
		if got := s.next(now.Add(after)); len(got) != want {
			t.Errorf("after %v, %d sessions would begin, want %d", after, len(got), want)
		}
	}
}

// If a task orders a measurement but ends before its GPU's turn, nothing remains. If it
// outlives a restart of the plugin, it is not forgotten.
func TestTicketsLastAsLongAsTheirTasks(t *testing.T) {
	cfg := DefaultSchedule()
	cfg.StateDir, cfg.Mode = statedir.Dir(t.TempDir()), Manual
	proc, id := t.TempDir(), fakecuda.UUID(0)
	open := func() *Scheduler {
		s, err := NewScheduler(cfg, Runner{proc: proc}, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		inv := twoGPUs().inv
		s.Observe(&inv, nil)
		return s
	}
	s := open()
	ticket, err := s.Reserve([]string{id}, nil)
	if err != nil {
		t.Fatal(err)
	}
	showProcess(t, proc, "1", "NOMAD_PAL_MEASURE=1 NOMAD_PAL_RESERVATION="+ticket)
	now := time.Now()
	s.look(now)
	s = open()
	s.look(now.Add(time.Second))
	if got := s.next(now.Add(time.Second + cfg.Gather)); len(got) != 1 || got[0].Device.ID != id {
		t.Errorf("after a restart sessions would begin on %+v", got)
	}
	if err := os.RemoveAll(filepath.Join(proc, "1")); err != nil {
		t.Fatal(err)
	}
	s.look(now.Add(20 * time.Second))
	if got := s.next(now.Add(time.Hour)); len(got) != 0 || len(s.tickets(now)) != 0 {
		t.Errorf("after the task's end sessions would begin on %+v, tickets %v", got, s.tickets(now))
	}
	// The plugin stops looking for a task without a process, such as that of a virtual machine.
	if _, err := s.Reserve([]string{id}, nil); err != nil {
		t.Fatal(err)
	}
	if len(s.tickets(now)) != 1 || len(s.tickets(time.Now().Add(ticketsLast))) != 0 {
		t.Error("the plugin looks for tickets for too short a time, or forever")
	}
}

// A class A that did not reach the power limit is published as such, until a session reaches it.
func TestUncappedIsPublished(t *testing.T) {
	s, err := NewScheduler(DefaultSchedule(), Runner{}, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	inv := twoGPUs().inv
	s.Observe(&inv, nil)
	d, r := inv.Devices[0], record{}
	for _, tc := range []struct {
		a, c Limit
		want bool
	}{{LimitNone, LimitPower, true}, {LimitPower, LimitNone, false}, {LimitNone, LimitNone, true}, {LimitUnknown, LimitNone, false}} {
		r.accept(Result{GPU: d.ID, Key: "k", Started: time.Now(), Apps: []App{
			{App: pal.ClassA, Ms: 10, LimitedBy: tc.a}, {App: pal.ClassC, Ms: 10, LimitedBy: tc.c}}}, identityOf(d, inv.DriverVersion))
		s.records[d.ID] = r
		if got := s.Accounts()[d.ID]; got.Uncapped != tc.want {
			t.Errorf("class A limited by %s: %+v", tc.a, got)
		}
	}
}

// Rates are stored, and published as long as the measurement is valid for the GPU, in units
// that compare across models. The mixed class has no rate.
func TestRatesOfASession(t *testing.T) {
	s, err := NewScheduler(DefaultSchedule(), Runner{}, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	inv := twoGPUs().inv
	d := inv.Devices[0]
	r := record{}
	r.accept(Result{GPU: d.ID, Key: "k", Started: time.Now(), Apps: []App{
		{App: pal.ClassA, Ms: 10, Rate: 600, Unit: "TFLOP/s"}, {App: pal.ClassC, Ms: 10, Rate: 4000, Unit: "GB/s"},
		{App: pal.ClassD, Ms: 10, Rate: 12, Unit: "Gload/s"}, {App: pal.ClassB, Ms: 10},
	}}, identityOf(d, inv.DriverVersion))
	s.records[d.ID] = r
	s.Observe(&inv, nil)
	want := map[pal.AppClass]float64{pal.ClassA: 600, pal.ClassC: 4000, pal.ClassD: 12}
	if got := inv.Devices[0].Measured.Rates; !maps.Equal(got, want) {
		t.Errorf("rates %v, want %v", got, want)
	}
	inv = twoGPUs().inv
	inv.DriverVersion += ".1"
	s.Observe(&inv, nil)
	if got := inv.Devices[0].Measured.Rates; got != nil {
		t.Errorf("after a change of the driver: %v", got)
	}
}

// A GPU whose own results disagree is published as wrong, also after a restart, until a whole
// session finds nothing wrong.
func TestSchedulerTellsTheGPUThatDisagreesWithItself(t *testing.T) {
	t.Parallel()
	f := newFake(t, "fail=corrupt", "fail.gpu=0", "fail.after=30")
	n := newNode(t, f, func(s *Schedule) { s.Plan.Classes, s.Plan.Limit = []pal.AppClass{pal.ClassA}, time.Second })
	tried := func(n *node) func() bool {
		return func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			r := n.records[fakecuda.UUID(0)]
			return !r.Tried.IsZero() && r.Begun.IsZero()
		}
	}
	n.until("a session", tried(n))
	if ds := n.observe(); !ds[0].Signals.Wrong || ds[1].Signals.Wrong {
		t.Errorf("wrong: %v and %v, want the first", ds[0].Signals.Wrong, ds[1].Signals.Wrong)
	}
	n.stop()
	f.tell(t)
	again := newNode(t, f, func(s *Schedule) { s.StateDir, s.Mode = n.cfg.StateDir, Manual })
	if ds := again.observe(); !ds[0].Signals.Wrong {
		t.Error("forgotten at a restart")
	}
	again.ask(0)
	again.until("measured again, and sound", func() bool { return !again.observe()[0].Signals.Wrong })
}
