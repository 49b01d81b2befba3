// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package ledger records which job holds which GPU. A [Ledger] is built from the state of package
// cluster, and follows the state's changes. The ledger's pal.Cluster shows the core which GPUs are
// taken. A job holds the GPUs of its live allocations, the GPUs in its pins, and the GPUs that a
// current decision gave it. If several jobs claim a GPU, a job with an allocation on the GPU takes
// precedence over a job that only has pins.
//
// The package also converts the data that nodes publish about their GPUs into scores, classes and
// speeds, and explains why GPUs are unavailable. Package ledger decides nothing, and reads no
// clock.
//
// What must stay true: The queue knows allocated GPUs only from the ledger, so the ledger must
// contain every holder of a GPU. A ledger that follows the state's changes must equal a new ledger
// that is built from the same state.
package ledger
