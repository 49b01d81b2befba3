// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package scheduler

import (
	"testing"

	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/scheduler"
	"github.com/hashicorp/nomad/scheduler/tests"
)

// The scheduler's test harness of Nomad 1.11; v1.10 has its own.
type harness = tests.Harness

func newHarness(t *testing.T) *harness { return tests.NewHarness(t) }

func process(h *harness, job *structs.Job, eval *structs.Evaluation) error {
	if job.Type == structs.JobTypeBatch {
		return h.Process(scheduler.NewBatchScheduler, eval)
	}
	return h.Process(scheduler.NewServiceScheduler, eval)
}
