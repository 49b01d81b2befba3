// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package sim simulates a GPU cluster under a queue and placement policy. The package runs the
// production core, pal.Place and pal/queue, under simulated time: [Config] is one run, driven by
// events, with restart costs, failures and wrong estimates. [Baselines] are other schedulers,
// including plain Nomad.
//
// The package is part of the product (nomad-pal simulate). The package research/artifact
// reimplements the PAL artifact's own simulator.
//
// Every change must preserve these properties. The same configuration and seed give the same
// outcome, byte for byte. The engine acts for the queue as the agent does: it carries out each
// action, reports it, and then asks again. Each job does exactly its work, even if the job is
// stopped, moved or slowed. The engine of plain Nomad shares no code with pal/queue.
package sim

import "github.com/nomad-pal/nomad-pal/pal"

// JobResult is the outcome of one job. Times are seconds since the trace began; -1 means never.
type JobResult struct {
	ID     string
	Class  pal.AppClass
	GPUs   int
	WorkS  float64
	Submit float64
	Start  float64 // first start
	Finish float64
	Wait   float64
	HeldS  float64  // total time for which the job held its GPUs
	Runs   int      // number of starts, including the first; under plain Nomad, number of tries
	Tier   pal.Tier // tier of the job's last placement; 0: it never ran
	Model  string   // model of the job's last GPUs (vendor/type/name); "": it never ran, or on several models
}

// Slowdown is the time that the job held its GPUs divided by its work at cost 1; it is 1 for a
// job without work.
func (j JobResult) Slowdown() float64 {
	if j.WorkS <= 0 {
		return 1
	}
	return j.HeldS / j.WorkS
}

// JCT is the job completion time. A JCT is never below 0, although times in a trace can be more
// precise than simulated times.
func (j JobResult) JCT() float64 { return max(0, j.Finish-j.Submit) }
