// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package rewrite adds the placer's gate and pins to a job, and removes them again. The gate makes
// Nomad hold the job until the placer decides. The pins tie the job to the GPUs that the placer has
// chosen. Package request decides which nodes and GPUs the pins name. Package rewrite also parses
// the author's hints ([ParseHints]). All functions are pure functions on Nomad's API types. The
// functions never change their argument, but return a copy that shares the unchanged parts.
//
// A job can have three forms:
//
//   - The author's form has neither a gate nor pins. [Author] restores it from any other form.
//   - The gated form is the author's form with one more constraint, which no node satisfies.
//   - The pinned form is the author's form with constraints on each group with GPUs. One constraint
//     lists node ids. Depending on the [Mode], each GPU request also has a constraint on instance
//     ids or on a class. [Pin] may also add a constraint to the whole job. ModePrefer instead writes
//     affinities, and for the replicas of a service a spread block, into each group with GPUs.
//
// A gang that is being stopped has a fourth form, gated and pinned. The allocations of a gated and
// pinned gang keep running until they are stopped, and Nomad cannot replace them.
//
// The package recognizes exactly the placer's own constraints. The package recognizes the gate by
// the target, pins by the mark at the beginning of their list (see [Mark]), and a class ceiling by
// the mark of the group. A mark is not the id of any node or GPU, so it does not change what the
// constraint selects. The package never mistakes an author's constraint for one of the placer's. A
// test with random jobs checks that Author(Pin(job)) equals the job.
//
// If you make the placer write anything else into jobs, change three more places: [Pinned] must
// read it, [Author] must remove it, and package rpc must copy it into dispatched and periodic jobs.
// Old marks must stay readable, because jobs that an older placer pinned can run for months.
package rewrite
