// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// A caller who cannot see a namespace finds no name from it in the reasons for waiting, neither in
// fields nor in sentences; everything else is unchanged.
func TestRedaction(t *testing.T) {
	t.Parallel()
	mine := model.Sees(func(namespace string) bool { return namespace == "mine" })
	all := model.Sees(func(string) bool { return true })
	for _, c := range []struct {
		name string
		wait queue.Wait
		want string // for a caller who sees only his own namespace
	}{
		{"kept for another", queue.Wait{Reason: reason.Reserved, Free: 2, Ahead: "theirs/secret"}, "free GPUs are reserved for " + model.Unseen + ", ahead in the queue"},
		{"kept for his own", queue.Wait{Reason: reason.Reserved, Free: 2, Ahead: "mine/first"}, "free GPUs are reserved for mine/first, ahead in the queue"},
		{"stopping some", queue.Wait{Reason: reason.Stopping, Stopping: []string{"theirs/secret", "mine/old"}}, model.Unseen + " and mine/old are being stopped for this job"},
		{"and shrinking some", queue.Wait{Reason: reason.Stopping, Stopping: []string{"theirs/secret"}, Shrinking: []string{"theirs/wide", "mine/wide"}},
			model.Unseen + " is being stopped for this job; " + model.Unseen + " and mine/wide are giving back GPUs"},
		{"nobody", queue.Wait{Reason: reason.GPUs, GPUs: 4, Free: 1}, "needs 4 GPUs; 1 is free"},
		{"a name that is none", queue.Wait{Reason: reason.Reserved, Ahead: "secret"}, "free GPUs are reserved for " + model.Unseen + ", ahead in the queue"},
	} {
		var j model.JobStatus
		j.Wait(&model.Wait{Wait: c.wait})
		e := Explanation{Reason: c.wait.Why()}
		e.takeWait(&model.Wait{Wait: c.wait}, &pal.Decision{}, 0)
		if got := j.RedactedFor(all); got.Reason.String() != j.Reason.String() && c.wait.Ahead != "secret" {
			t.Errorf("%s: who sees all reads %q", c.name, got.Reason.String())
		}
		got := j.RedactedFor(mine)
		if got.Reason.String() != c.want {
			t.Errorf("%s: %q, want %q", c.name, got.Reason.String(), c.want)
		}
		his := e.RedactedFor(mine)
		if his.Reason.String() != c.want || his.Wait.Why().String() != c.want {
			t.Errorf("%s: explained %q, %q", c.name, his.Reason.String(), his.Wait.Why())
		}
		if e.Wait.Ahead != c.wait.Ahead || strings.Join(e.Wait.Stopping, " ") != strings.Join(c.wait.Stopping, " ") {
			t.Errorf("%s: the snapshot's own explanation has changed", c.name)
		}
	}
	g := GPU{Job: "theirs/secret", Quarantine: &failure.Quarantine{Reason: "task secret failed", Strikes: 2}}
	if got := g.RedactedFor(mine, false); got.Job != model.Unseen || strings.Contains(got.Quarantine.Reason, "secret") || got.Quarantine.Strikes != 2 || !strings.Contains(g.Quarantine.Reason, "secret") {
		t.Errorf("%+v", got)
	}
	if got := g.RedactedFor(all, true); got.Job != g.Job || got.Quarantine.Reason != g.Quarantine.Reason {
		t.Errorf("to an operator: %+v", got)
	}
	if got := (GPU{}).RedactedFor(mine, false); got.Job != "" {
		t.Errorf("a free GPU: %+v", got)
	}
}
