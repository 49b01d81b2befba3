// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Each reason has words of its own: one that was forgotten would be told as too few GPUs.
func TestReasonsHaveWords(t *testing.T) {
	t.Parallel()
	code, err := os.ReadFile("waiting.go")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`Reason\w+ +Reason = `).FindAll(code, -1)
	if len(all) != len(Reasons) {
		t.Errorf("there are %d reasons, and %d in the list", len(all), len(Reasons))
	}
	said := map[string]Reason{}
	for _, r := range Reasons {
		why := Wait{Reason: r, GPUs: 4, Free: 2, Ahead: "a", Stopping: []string{"b"}, Shrinking: []string{"c"}}.Why()
		if other, ok := said[why]; ok {
			t.Errorf("%s and %s are told alike: %q", r, other, why)
		}
		said[why] = r
	}
}

// Free GPUs are kept for nobody by a gang that others are being stopped for: it has its own.
func TestNotKeptForWhoHasGPUs(t *testing.T) {
	c, err := pal.NewCluster(testNodes(2, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{queue: newTestLine(t, Options{Order: Priority, Preempt: true, Placement: pal.Policy{Name: pal.PAL}}), cluster: c,
		gangs: map[string]pal.Gang{}, places: map[string]pal.Placement{}}
	say := func(job, decides string) {
		t.Helper()
		if err := w.submit(job); err != nil {
			t.Fatal(err)
		}
		if got := w.decide(); got != decides {
			t.Fatalf("%s: %q, want %q", job, got, decides)
		}
	}
	say("low 7 prio=1 pre=1", "start low on 0,1,2,3,4,5,6\n")
	w.now, w.manual = time.Hour, true
	say("high 4 prio=9", "preempt low for high\n")
	if err := w.submit("next 1 prio=5"); err != nil {
		t.Fatal(err)
	}
	if ws := w.queue.Waiting(w.now, c); len(ws) != 2 || ws[1].Reason != ReasonNext || ws[1].Ahead != "" {
		t.Errorf("waiting: %v", ws)
	}
}
