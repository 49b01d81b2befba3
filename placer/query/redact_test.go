// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// Whoever cannot see a namespace finds no name of it in what a job waits for, in
// fields or in words; the rest is as it was.
func TestRedaction(t *testing.T) {
	t.Parallel()
	mine := model.Sees(func(namespace string) bool { return namespace == "mine" })
	all := model.Sees(func(string) bool { return true })
	for _, c := range []struct {
		name string
		wait queue.Wait
		want string // to who sees his own
	}{
		{"kept for another", queue.Wait{Reason: queue.ReasonReserved, Free: 2, Ahead: "theirs/secret"}, "waits: the free GPUs that it could use are kept for " + model.Unseen + ", which goes first"},
		{"kept for his own", queue.Wait{Reason: queue.ReasonReserved, Free: 2, Ahead: "mine/first"}, "waits: the free GPUs that it could use are kept for mine/first, which goes first"},
		{"stopping some", queue.Wait{Reason: queue.ReasonStopping, Stopping: []string{"theirs/secret", "mine/old"}}, "waits until " + model.Unseen + ", mine/old have stopped for it"},
		{"and shrinking some", queue.Wait{Reason: queue.ReasonStopping, Stopping: []string{"theirs/secret"}, Shrinking: []string{"theirs/wide", "mine/wide"}},
			"waits until " + model.Unseen + " has stopped for it, and " + model.Unseen + ", mine/wide have given back members that they could do without"},
		{"nobody", queue.Wait{Reason: queue.ReasonGPUs, GPUs: 4, Free: 1}, "waits: it needs 4 GPUs, 1 is free"},
		{"a name that is none", queue.Wait{Reason: queue.ReasonReserved, Ahead: "secret"}, "waits: the free GPUs that it could use are kept for " + model.Unseen + ", which goes first"},
	} {
		var j model.JobStatus
		j.Wait(&model.Wait{Wait: c.wait})
		e := Explanation{Reason: wouldWait(c.wait.Why())} // as plan says it
		e.takeWait(&model.Wait{Wait: c.wait})
		if got := j.For(all); got.Reason != j.Reason && c.wait.Ahead != "secret" {
			t.Errorf("%s: who sees all reads %q", c.name, got.Reason)
		}
		got := j.For(mine)
		if got.Reason != c.want {
			t.Errorf("%s: %q, want %q", c.name, got.Reason, c.want)
		}
		his := e.For(mine)
		if want := wouldWait(c.want); his.Reason != want || his.Wait.Why() != c.want {
			t.Errorf("%s: explained %q, %q", c.name, his.Reason, his.Wait.Why())
		}
		if e.Wait.Ahead != c.wait.Ahead || strings.Join(e.Wait.Stopping, " ") != strings.Join(c.wait.Stopping, " ") {
			t.Errorf("%s: the snapshot's own explanation has changed", c.name)
		}
	}
	g := GPU{Job: "theirs/secret", Quarantine: &failure.Quarantine{Reason: "task secret failed", Strikes: 2}}
	if got := g.For(mine, false); got.Job != model.Unseen || strings.Contains(got.Quarantine.Reason, "secret") || got.Quarantine.Strikes != 2 || !strings.Contains(g.Quarantine.Reason, "secret") {
		t.Errorf("%+v", got)
	}
	if got := g.For(all, true); got.Job != g.Job || got.Quarantine.Reason != g.Quarantine.Reason {
		t.Errorf("to an operator: %+v", got)
	}
	if got := (GPU{}).For(mine, false); got.Job != "" {
		t.Errorf("a free GPU: %+v", got)
	}
}
