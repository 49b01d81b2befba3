// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// The plugin notices that CUDA does not start even if it measures no GPU, also after a restart.
func TestNodeWhoseFabricIsNotReady(t *testing.T) {
	f := newFake(t, "fail=not-ready")
	schedule := func(s *Schedule) { s.Mode, s.Ask, s.AskUnsuspected = Manual, 10*time.Millisecond, time.Hour }
	n := newNode(t, f, schedule)
	refused := func() bool {
		ds := n.observe()
		if ds[0].Signals.CUDARefused != ds[1].Signals.CUDARefused {
			t.Fatalf("one GPU is refused: %v, the other: %v", ds[0].Signals.CUDARefused, ds[1].Signals.CUDARefused)
		}
		return ds[0].Signals.CUDARefused
	}
	n.until("not ready", refused)
	f.tell(t, "gpus=2")
	n.until("ready", func() bool { return !refused() })
}

// Only error 802, and then a start, say whether the fabric is ready. CUDA is tested each minute or
// each hour, and never on a node with a single GPU, which no NVSwitch joins to another.
func TestReadiness(t *testing.T) {
	s, err := NewScheduler(DefaultSchedule(), Runner{Self: []string{"false"}}, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	inv := twoGPUs().inv
	s.Observe(&inv, nil)
	asks := func(after time.Duration) bool {
		var wg sync.WaitGroup
		last := s.asked
		s.ask(t.Context(), &wg, last.Add(after))
		wg.Wait()
		return s.asked != last
	}
	for _, step := range []struct {
		what string
		err  error
		want bool
	}{
		{"another error", &childError{"mismatch", 803}, false},
		{"refused", &childError{"not ready", 802}, true},
		{"no answer", errors.New("the CUDA driver does not answer"), true},
		{"it starts", nil, false},
	} {
		if s.answered(step.err); s.refused != step.want {
			t.Errorf("%s: refused %v, want %v", step.what, s.refused, step.want)
		}
		if asks(59*time.Second) || asks(time.Minute) != step.want {
			t.Errorf("%s: not tested at the right time", step.what)
		}
	}
	if asks(59*time.Minute) || !asks(time.Hour) {
		t.Error("not tested after an hour, or before, though nothing is suspected")
	}
	s.inv.Devices = s.inv.Devices[:1]
	if asks(24 * time.Hour) {
		t.Error("CUDA is tested on a node with one GPU")
	}
	if s.refused = true; !asks(time.Minute) {
		t.Error("not tested again, because the other GPU was switched to MIG meanwhile")
	}
}
