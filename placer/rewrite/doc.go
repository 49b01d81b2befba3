// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package rewrite turns a job into a job: it adds and removes the gate that
// makes Nomad hold a job for the placer, and the pins that tie a released job
// to the GPUs chosen for it. Pure functions on Nomad's API types; a job that
// is passed in is never changed.
//
// Three forms of one job exist:
//
//   - the author's: neither gate nor pins ([Author] of any form gives it back);
//   - gated: the author's and one constraint that no node satisfies;
//   - pinned: the author's and, per group with GPUs, one constraint on node ids
//     and one on instance ids per GPU task.
//
// Preemption makes a fourth, gated and pinned: its allocations run on while
// replacements would be held.
//
// Our constraints are recognised exactly: the gate by its target, pins by the
// value [Mark] in their list, which is no id of any node or GPU and so changes
// nothing in what the constraint selects.
package rewrite
