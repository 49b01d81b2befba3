// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"errors"
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
		if !r.due(now, time.Minute) || r.due(now.Add(-time.Second), time.Minute) {
			t.Errorf("%s: due %v, and a second earlier %v", what, r.due(now, time.Minute), r.due(now.Add(-time.Second), time.Minute))
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
	if r.due(now.Add(time.Hour), time.Minute) {
		t.Error("asked though nothing is suspected")
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
