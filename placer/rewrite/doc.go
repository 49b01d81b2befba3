// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package rewrite adds to a job what the placer writes into the job, the gate and the pins, and
// removes both again. The gate makes Nomad hold the job until the placer decides. The pins tie the
// job to the GPUs that were chosen for it. Package request decides which nodes and GPUs the pins
// name. Package rewrite also parses the author's hints ([ParseHints]). Its functions are pure
// functions on Nomad's API types: they never change the job that they get, but return a copy that
// shares the unchanged parts.
//
// Three forms of one job exist:
//
//   - the author's: neither gate nor pins ([Author] restores it from any form);
//   - gated: the author's form and one constraint that no node satisfies;
//   - pinned: the author's form and, per group with GPUs, one constraint on node ids and, depending
//     on the [Mode], one on instance ids or on a class per GPU task. ModePrefer writes affinities
//     instead. [Pin] may also add a constraint of the whole job.
//
// A gang that is being stopped has a fourth form, gated and pinned. Its allocations keep running
// until they are stopped, and Nomad cannot replace them.
//
// The package recognizes exactly its own constraints: the gate by its target, pins by the mark at
// the beginning of their list (see [Mark]), a class ceiling by the mark of its group. A mark is not
// the id of any node or GPU, so it does not change what the constraint selects. The package never
// mistakes what an author wrote for what the placer wrote. A test with random jobs checks that
// Author(Pin(job)) equals the job.
//
// If you make the placer write anything new into jobs, change three other places, too: [Pinned]
// must read it back, [Author] must remove it, and package rpc must copy it into dispatched and
// periodic jobs. Old marks must stay readable, because jobs that an older placer pinned can run for
// months.
package rewrite
