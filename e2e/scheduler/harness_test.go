// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build !nomad1.10

package scheduler

import (
	"testing"

	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/scheduler"
	"github.com/hashicorp/nomad/scheduler/tests"
)

// recorded is the folder in testdata for stories with other answers in this
// release line; 1.11 has none.
const recorded = ""

// harness is the scheduler's test harness of Nomad 1.11.
type harness = tests.Harness

func newHarness(t *testing.T) *harness { return tests.NewHarness(t) }

func process(h *harness, job *structs.Job, eval *structs.Evaluation) error {
	if job.Type == structs.JobTypeBatch {
		return h.Process(scheduler.NewBatchScheduler, eval)
	}
	return h.Process(scheduler.NewServiceScheduler, eval)
}
