// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package rewrite adds to a job, and removes, what the placer writes into it: the gate that
// makes Nomad hold a job for the placer, and the pins that tie a released job
// to the GPUs chosen for it; package request chooses what pins name. It also
// parses the author's hints ([ParseHints]). Pure functions on Nomad's API types: they never
// change the job that they get, copy what they change, and share the rest.
//
// Three forms of one job exist:
//
//   - the author's: neither gate nor pins ([Author] of any form gives it back);
//   - gated: the author's and one constraint that no node satisfies;
//   - pinned: the author's and, per group with GPUs, one constraint on node ids
//     and one on instance ids per GPU task.
//
// A gang that is being stopped has a fourth, gated and pinned: its allocations run on
// until they are stopped, and Nomad cannot replace them.
//
// Our constraints are recognised exactly: the gate by its target, pins by the
// value [Mark] in their list, which is no id of any node or GPU and so changes
// nothing in what the constraint selects. What an author wrote is never taken for ours:
// Author(Pin(job)) is the job, and a test holds it to that for random jobs.
package rewrite
