// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// A gang that was requeued goes to other nodes than those that failed it, but
// for those that were down and those whose unhealthy GPUs are kept out anyway.
func TestFailedOn(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	h := model.Model{Failures: []failure.Failure{
		{At: now.Add(-2 * model.AvoidFor), Namespace: "default", Job: "j", Node: "long ago", Cause: failure.User},
		{At: now, Namespace: "other", Job: "j", Node: "of another job", Cause: failure.User},
		{At: now, Namespace: "default", Job: "j", Node: "unhealthy", Cause: failure.Infrastructure, Unhealthy: []string{"g1"}},
		{At: now, Namespace: "default", Job: "j", Node: "down", Cause: failure.Infrastructure, Reason: failure.NodeDown},
	}}
	k := nomad.JobKey{Namespace: "default", ID: "j"}
	if got := h.FailedOn(k, now); got != nil {
		t.Errorf("avoided: %v", got)
	}
	h.Failures = append(h.Failures,
		failure.Failure{At: now, Namespace: "default", Job: "j", Node: "no image", Cause: failure.Infrastructure, Driver: true},
		failure.Failure{At: now, Namespace: "default", Job: "j", Node: "exit 1", Cause: failure.User})
	if d := cmp.Diff(map[string]bool{"no image": true, "exit 1": true}, h.FailedOn(k, now)); d != "" {
		t.Errorf("avoided (-want +got):\n%s", d)
	}
}

// A failure of a year from now, as a server's clock may say, counts as one of now, and
// so does a success.
func TestTimesOfTheFuture(t *testing.T) {
	t.Parallel()
	_, c := newVars(t)
	p := newPlacer(t)
	p.nomad, p.m.State = c, nomad.NewState()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ahead := now.AddDate(1, 0, 0)
	for i, client := range []string{"failed", "complete"} {
		p.m.State.PutAlloc(&nomad.Alloc{ID: client, Job: nomad.JobKey{Namespace: "default", ID: "j"}, Node: "n", Client: client, Desired: "run", GPUs: []string{"g"},
			ModifyIndex: uint64(i + 1), CreateTime: ahead.Add(-time.Minute).UnixNano(), ModifyTime: ahead.UnixNano()})
	}
	if err := p.noteFailures(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if f := p.m.Failures[0]; !f.At.Equal(now) || !f.Placed.Equal(now.Add(-time.Minute)) {
		t.Errorf("it failed at %v, placed at %v", f.At, f.Placed)
	}
	if f := (failure.Failure{At: now, Namespace: "default", Job: "j", Node: "n", Cause: failure.User}); (&model.Model{Failures: []failure.Failure{notAfter(f, now)}}).FailedOn(nomad.JobKey{Namespace: "default", ID: "j"}, now.Add(2*model.AvoidFor)) != nil {
		t.Error("its node is avoided for longer than it should be")
	}
}
