// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"testing"

	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/hostile"
)

// A member of an earlier version that fails when it is stopped says nothing of the job as
// it is: a drained gang was not queued again for it (walk 100669).
func TestLastFailureIsOfTheJobAsItIs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version uint64
		want    bool
	}{{4, false}, {5, true}} {
		m := model.Model{State: nomad.NewState()}
		job := hostile.Plain("j", 1, 1, 1)
		version, index := uint64(5), uint64(100)
		job.Version, job.JobModifyIndex, job.ModifyIndex = &version, &index, &index
		m.State.PutJob(job)
		m.State.PutAlloc(&nomad.Alloc{ID: "a", Job: nomad.KeyOf(job), Client: "failed", Desired: "stop", Version: &c.version, CreateIndex: 50, ModifyIndex: 150})
		m.Failures = []failure.Failure{{Alloc: "a", Cause: failure.Infrastructure}}
		if got := m.World().LastFailure(job) != nil; got != c.want {
			t.Errorf("a member of version %d of a job at version 5 failed: %t", c.version, got)
		}
	}
}
