// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda/fakecuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/statedir"
	"github.com/nomad-pal/nomad-pal/internal/testlog"
	"github.com/nomad-pal/nomad-pal/pal"
)

func TestVote(t *testing.T) {
	for _, tc := range []struct {
		sums string // one letter per GPU; a space separates keys
		want string // one letter per GPU: . fine, w wrong, ? nobody can tell
	}{
		{"a", "."}, {"aaaa", "...."}, {"aaba", "..w."}, {"abab", "????"}, {"ab", "??"}, {"aab", "..w"},
		{"aabb c", "????."}, {"ab a", "??."}, {"-ab-a", "..w.."}, {"aaabc", "...ww"},
	} {
		var ballots []ballot
		key, n := 0, 0
		for _, c := range tc.sums {
			if c == ' ' {
				key++
				continue
			}
			b := ballot{fmt.Sprint(n), fmt.Sprint(key), map[pal.AppClass]string{pal.ClassD: string(c)}}
			if c == '-' {
				b.sums = nil // not measured
			}
			ballots = append(ballots, b)
			n++
		}
		got := []byte(strings.Repeat(".", n))
		for i := range got {
			for _, d := range vote(ballots)[fmt.Sprint(i)] {
				got[i] = map[bool]byte{true: 'w', false: '?'}[d.wrong]
			}
		}
		if diff := cmp.Diff(tc.want, string(got)); diff != "" {
			t.Errorf("%q (-want +got)\n%s", tc.sums, diff)
		}
	}
}

// A GPU that always computes the same wrong result agrees with itself. The other GPUs of
// its model reveal it.
func TestReportShowsTheGPUThatComputesWrongly(t *testing.T) {
	t.Parallel()
	f := newFake(t, "gpus=3", "wrong.2=1")
	m := twoGPUs()
	m.inv.Devices = append(m.inv.Devices, target(2).Device)
	m.samples[fakecuda.UUID(2)] = m.samples[fakecuda.UUID(0)]
	code, out, errs := run(f, m, "-json")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	r, err := parseReport([]byte(out))
	if err != nil {
		t.Fatal(err)
	}
	for i, res := range r.Results {
		wrong := strings.Contains(strings.Join(res.Warnings, "\n"), "class C: 2 of the 3 GPUs with the same key agree on another result")
		if bad := i == 2; wrong != bad || (len(res.Apps) == 0) != bad {
			t.Errorf("GPU %d: %d classes, warnings %q", i, len(res.Apps), res.Warnings)
		}
	}
}

// The plugin does not publish the times of such a GPU.
func TestSchedulerSilencesTheGPUThatComputesWrongly(t *testing.T) {
	t.Parallel()
	f := newFake(t, "gpus=3", "wrong.2=1")
	var log testlog.Buffer
	n := newNodeLogging(t, f, hclog.New(&hclog.LoggerOptions{Output: &log}), func(s *Schedule) { s.Plan.Classes = []pal.AppClass{pal.ClassA} })
	n.inv.Devices = append(n.inv.Devices, target(2).Device)
	n.until("all are measured", func() bool {
		n.observe()
		n.mu.Lock()
		defer n.mu.Unlock()
		for i := range 3 {
			if n.records[fakecuda.UUID(i)].Measured.IsZero() {
				return false
			}
		}
		return true
	})
	ds := n.observe()
	if len(ds[0].Times) != 1 || len(ds[1].Times) != 1 || len(ds[2].Times) != 0 {
		t.Errorf("published: %v, %v, %v; want all but the third", ds[0].Times, ds[1].Times, ds[2].Times)
	}
	if ds[1].Signals.Wrong || !ds[2].Signals.Wrong {
		t.Error("its health does not say so")
	}
	if !strings.Contains(log.String(), "2 of the 3 GPUs with the same key agree on another result") {
		t.Errorf("log:\n%s", &log)
	}
}

// The same holds for a GPU whose own results disagree, even alone in its node and after a
// restart, until a whole session finds nothing wrong.
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
	if err := statedir.Measure.Give(n.cfg.StateDir, fakecuda.UUID(0)); err != nil {
		t.Fatal(err)
	}
	again.until("measured again, and sound", func() bool { return !again.observe()[0].Signals.Wrong })
}
