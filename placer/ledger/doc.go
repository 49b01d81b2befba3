// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package ledger is the book of who holds which GPU ([Ledger]). It is a pal.Cluster, derived from
// the state of package cluster, and follows the state's changes. A job holds the GPUs of its live
// allocations, those in its pins, and those that a current decision gave it.
package ledger
