// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package placer runs the cycle that serves gated jobs:
//
//	observe  Nomad's event stream and full lists            (placer/nomad)
//	snapshot the cluster and the waiting gangs               (placer/nomad)
//	decide   which gangs start, on which GPUs               (pal, pure)
//	rewrite  the job: gate off, pins on                      (placer/rewrite, pure)
//	commit   by check-and-set register: the one atomic step
//	confirm  that the allocations run on exactly these GPUs
//	record   the decision with its reasons, for explain
//
// Everything is derived from what Nomad says: a placer that dies at any point
// and starts again finds each job in one of the phases of [Phase] and goes on
// from there.
package placer
