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

// One process that CUDA refuses says nothing, nor do eight at a time.
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
		if r = r.after(now, err); r.not() != want {
			t.Errorf("%s: not ready %v", what, r.not())
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
		t.Error("asked on a node of one GPU")
	}
	r = r.suspected(now)
	step("once, and then it starts", nil, false)
}

// Where CUDA does not start the GPUs are unhealthy, also after a restart, until it does.
func TestNodeWhoseFabricIsNotReady(t *testing.T) {
	f := newFake(t, "fail=not-ready")
	var cfg Schedule
	n := newNode(t, f, func(s *Schedule) {
		s.Ask = 10 * time.Millisecond
		cfg = *s
	})
	fabric := func(n *node) string {
		ds := n.observe()
		if ds[0].Signals.Fabric != ds[1].Signals.Fabric {
			t.Fatalf("one GPU is %q, the other %q", ds[0].Signals.Fabric, ds[1].Signals.Fabric)
		}
		return ds[0].Signals.Fabric
	}
	n.until("not ready", func() bool { return fabric(n) == gpu.FabricNotReady })
	n.stop()
	n = newNode(t, f, func(s *Schedule) { *s = cfg })
	if got := fabric(n); got != "" {
		t.Errorf("%q before anything was asked", got)
	}
	n.until("not ready after a restart", func() bool { return fabric(n) == gpu.FabricNotReady })
	f.tell(t, "gpus=2")
	n.until("ready", func() bool { return fabric(n) == "" })
}

// That CUDA does not start shows also if no GPU is to be measured; not on one GPU, which no NVSwitch joins to
// another.
func TestNodeWhoseFabricIsNotReadyIsNotMeasured(t *testing.T) {
	f := newFake(t, "fail=not-ready")
	schedule := func(s *Schedule) { s.Mode, s.Ask, s.AskUnsuspected = Manual, 10*time.Millisecond, time.Hour }
	n := newNode(t, f, schedule)
	fabric := func() string { return n.observe()[0].Signals.Fabric }
	n.until("not ready", func() bool { return fabric() == gpu.FabricNotReady })
	f.tell(t, "gpus=2")
	n.until("ready", func() bool { return fabric() == "" })

	one := &Scheduler{cfg: Schedule{AskUnsuspected: time.Hour}}
	var asked sync.WaitGroup
	one.inv.Devices = n.inv.Devices[:1]
	if !one.ready.due(time.Now(), 0, one.cfg.AskUnsuspected) {
		t.Fatal("nobody is asked in the first place")
	}
	if one.ask(t.Context(), &asked, time.Now()); one.asking != nil {
		t.Error("a node of one GPU is asked, which no NVSwitch joins to another")
	}
	asked.Wait()
}
