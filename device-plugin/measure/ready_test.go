// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// One process that CUDA refuses proves nothing, and neither do eight at the same time.
func TestReadiness(t *testing.T) {
	refused, other := &childError{"not ready", 802}, &childError{"mismatch", 803}
	now, r := time.Unix(1000, 0), readiness{}
	step := func(what string, err error, want bool) {
		t.Helper()
		now = now.Add(time.Minute)
		due := func(at time.Time) bool { return r.due(at, time.Minute, time.Hour) }
		if !due(now) || due(now.Add(-time.Second)) {
			t.Errorf("%s: due %v, and a second earlier %v", what, due(now), due(now.Add(-time.Second)))
		}
		if r = r.after(now, err); r.not(false) != want {
			t.Errorf("%s: not ready %v", what, r.not(false))
		}
	}
	for range 8 {
		r = r.suspected(now)
	}
	step("refused again", refused, false)
	step("no answer", errors.New("the CUDA driver does not answer"), false)
	step("another error", other, false)
	step("refused a third time", refused, true)
	step("still", refused, true)
	step("no answer meanwhile", other, true)
	step("it starts", nil, false)
	if r.due(now.Add(time.Hour-time.Second), time.Minute, time.Hour) || !r.due(now.Add(time.Hour), time.Minute, time.Hour) {
		t.Error("not asked after an hour, or before, though nothing is suspected")
	}
	if r.due(now.Add(24*time.Hour), time.Minute, 0) {
		t.Error("CUDA is tested on a node with one GPU")
	}
	r = r.suspected(now)
	step("once, and then it starts", nil, false)
}

// While CUDA does not start, the GPUs are unhealthy, also after a restart of the plugin.
func TestNodeWhoseFabricIsNotReady(t *testing.T) {
	f := newFake(t, "fail=not-ready")
	var cfg Schedule
	n := newNode(t, f, func(s *Schedule) {
		s.Ask = 10 * time.Millisecond
		cfg = *s
	})
	refused := func(n *node) bool {
		ds := n.observe()
		if ds[0].Signals.CUDARefused != ds[1].Signals.CUDARefused {
			t.Fatalf("one GPU is refused: %v, the other: %v", ds[0].Signals.CUDARefused, ds[1].Signals.CUDARefused)
		}
		return ds[0].Signals.CUDARefused
	}
	n.until("not ready", func() bool { return refused(n) })
	n.stop()
	n = newNode(t, f, func(s *Schedule) { *s = cfg })
	if refused(n) {
		t.Error("refused before any process ran")
	}
	n.until("not ready after a restart", func() bool { return refused(n) })
	f.tell(t, "gpus=2")
	n.until("ready", func() bool { return !refused(n) })
}

// The plugin notices that CUDA does not start even if it measures no GPU. It does not check
// a node with a single GPU, which no NVSwitch joins to another.
func TestNodeWhoseFabricIsNotReadyIsNotMeasured(t *testing.T) {
	f := newFake(t, "fail=not-ready")
	schedule := func(s *Schedule) { s.Mode, s.Ask, s.AskUnsuspected = Manual, 10*time.Millisecond, time.Hour }
	n := newNode(t, f, schedule)
	refused := func() bool { return n.observe()[0].Signals.CUDARefused }
	n.until("not ready", refused)
	f.tell(t, "gpus=2")
	n.until("ready", func() bool { return !refused() })

	one := &Scheduler{cfg: Schedule{AskUnsuspected: time.Hour}}
	var asked sync.WaitGroup
	one.inv.Devices = n.inv.Devices[:1]
	if !one.ready.due(time.Now(), 0, one.cfg.AskUnsuspected) {
		t.Fatal("no process tests CUDA at all")
	}
	if one.ask(t.Context(), &asked, time.Now()); one.asking != nil {
		t.Error("CUDA is tested on a node with a single GPU, which no NVSwitch joins to another")
	}
	asked.Wait()
}

// NVML's report about the fabric decides nothing while CUDA starts. With it, one refusal is
// enough.
func TestWordOfNVMLOnTheFabric(t *testing.T) {
	now, refused := time.Unix(1000, 0), &childError{"not ready", 802}
	for _, tc := range []struct {
		said bool
		err  error
		want bool
	}{{false, nil, false}, {true, nil, false}, {true, errors.New("no answer"), false}, {false, refused, false}, {true, refused, true}} {
		if r := (readiness{}).after(now, tc.err); r.not(tc.said) != tc.want {
			t.Errorf("NVML says so: %v, CUDA: %v; not ready: %v", tc.said, tc.err, r.not(tc.said))
		}
	}
}

// The plugin checks a single GPU at once if the driver reports that its fabric is not set up.
func TestFabricIsAskedAboutAtOnce(t *testing.T) {
	f := newFake(t, "fail=not-ready")
	n := newNode(t, f, func(s *Schedule) { s.Mode, s.Ask, s.AskUnsuspected = Manual, time.Hour, 100*time.Hour })
	n.inv.Devices = n.inv.Devices[:1]
	n.inv.Devices[0].Signals.FabricLimits = []string{gpu.FabricFailed}
	n.until("not ready", func() bool { return n.observe()[0].Signals.CUDARefused })
}
