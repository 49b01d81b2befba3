// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// Each reason has its own text. Otherwise a forgotten reason would have the text of "too few GPUs".
func TestReasonsHaveWords(t *testing.T) {
	t.Parallel()
	said := map[string]reason.Kind{}
	for _, r := range Reasons {
		why := Wait{Reason: r, GPUs: 4, Free: 2, Ahead: "a", Stopping: []string{"b"}, Shrinking: []string{"c"}}.Why().String()
		if other, ok := said[why]; ok || why == "" {
			t.Errorf("%s and %s have the same words: %q", r, other, why)
		}
		said[why] = r
	}
}

// A gang for which others are being stopped keeps no free GPUs from other gangs, because it will
// get the GPUs of its victims.
func TestNotKeptForWhoHasGPUs(t *testing.T) {
	c, err := pal.NewCluster(testNodes(2, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{queue: newTestLine(t, Options{Order: FIFO, JobPriority: true, Preempt: true, Placement: pal.Policy{Name: pal.PAL}}), cluster: c,
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
	if ws := w.queue.Waiting(w.now, c); len(ws) != 2 || ws[1].Reason != reason.Next || ws[1].Ahead != "" {
		t.Errorf("waiting: %v", ws)
	}
}

// A gang's reason for waiting counts only the GPUs that the gang can use. GPUs of other models do
// not count, and are not kept for it. In strict order, no gang is expected to start before the
// gangs ahead.
func TestReasonsAreOfItsOwnModel(t *testing.T) {
	t.Parallel()
	var nodes []pal.Node
	for i, model := range []string{"a", "b"} {
		n := pal.Node{ID: model, Name: model, Groups: []pal.DeviceGroup{{Name: model}}}
		for k := range 4 {
			n.Groups[0].GPUs = append(n.Groups[0].GPUs, pal.GPU{ID: fmt.Sprint(i, "-", k)})
		}
		nodes = append(nodes, n)
	}
	of := func(id string, gpus int, eligible ...bool) Job {
		return Job{ID: id, Estimate: time.Hour, Gang: pal.Gang{ID: id, Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: 1, GPUs: gpus, Eligible: eligible}}}}
	}
	for backfill, want := range map[Backfill]string{
		BackfillNone:     "#1 head: needs 4 GPUs; 2 are free, not counting 4 that this job cannot use|#2 other: head is ahead, and no job may pass it (backfill = none)",
		BackfillReserved: "#1 head: needs 4 GPUs; 2 are free, not counting 4 that this job cannot use|#2 other: the job's GPUs are free; nomad-pal starts the job next",
	} {
		c, err := pal.NewCluster(nodes, pal.TwoTier(1.7))
		if err != nil {
			t.Fatal(err)
		}
		q, err := New(Options{Order: FIFO, Backfill: backfill, Placement: pal.Policy{Name: pal.PAL}})
		if err != nil {
			t.Fatal(err)
		}
		runs := of("runs", 2, true, false)
		if err := q.Submit(0, runs); err != nil {
			t.Fatal(err)
		}
		for _, a := range q.Decide(0, c) {
			c.Take(runs.Gang, a.Placement)
			q.Started(0, a.Job, a.Placement)
		}
		for _, j := range []Job{of("head", 4, true, false), of("other", 1, false, true)} {
			if err := q.Submit(0, j); err != nil {
				t.Fatal(err)
			}
		}
		ws := q.Waiting(0, c)
		if got := fmt.Sprintf("%s|%s", ws[0], ws[1]); got != want {
			t.Errorf("%s: %s", backfill, got)
		}
		if backfill == BackfillNone && (ws[0].From < 30*time.Minute || ws[1].From < ws[0].From || ws[1].To < ws[0].To) {
			t.Errorf("the head is expected from %s to %s, the one behind it from %s to %s", ws[0].From, ws[0].To, ws[1].From, ws[1].To)
		}
	}
}
