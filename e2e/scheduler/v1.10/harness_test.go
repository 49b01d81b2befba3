// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package scheduler

import (
	"testing"

	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/scheduler"
)

// The scheduler's test harness of Nomad 1.10. The tests are links to those of 1.11.
type harness = scheduler.Harness

func newHarness(t *testing.T) *harness { return scheduler.NewHarness(t) }

func process(h *harness, job *structs.Job, eval *structs.Evaluation) error {
	if job.Type == structs.JobTypeBatch {
		return h.Process(scheduler.NewBatchScheduler, eval)
	}
	return h.Process(scheduler.NewServiceScheduler, eval)
}
