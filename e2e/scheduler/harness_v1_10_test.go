// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build nomad1.10

package scheduler

import (
	"testing"

	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/scheduler"
)

// recorded is the folder in testdata for stories with other answers in 1.10.
const recorded = "v1.10"

// harness is the scheduler's test harness of Nomad 1.10.
type harness = scheduler.Harness

func newHarness(t *testing.T) *harness { return scheduler.NewHarness(t) }

func process(h *harness, job *structs.Job, eval *structs.Evaluation) error {
	if job.Type == structs.JobTypeBatch {
		return h.Process(scheduler.NewBatchScheduler, eval)
	}
	return h.Process(scheduler.NewServiceScheduler, eval)
}
