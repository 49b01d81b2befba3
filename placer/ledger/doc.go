// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package ledger records who holds which GPU. A [Ledger] derives a pal.Cluster from the state of
// package cluster, and follows the state's changes. A job holds the GPUs of its live allocations,
// the GPUs in its pins, and the GPUs that a current decision gave it. If several jobs claim one
// GPU, a job with an allocation on the GPU goes before a job with only pins.
//
// The package also turns what nodes publish about their GPUs into scores, classes and speeds, and
// explains which GPUs are unavailable. Package ledger decides nothing, and reads no clock.
//
// What must stay true: the queue sees only the ledger, so the ledger must have every holder of a
// GPU. A ledger that follows changes must equal one built from scratch from the same state.
package ledger
