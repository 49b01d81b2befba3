// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package ledger is the book of who holds which GPU ([Ledger]). It is a pal.Cluster, derived from
// the state of package cluster, and follows the state's changes. A job holds the GPUs of its live
// allocations, those in its pins, and those that a current decision gave it. If several jobs want
// one GPU, the first has it.
//
// It also turns what nodes publish about their GPUs into scores, classes and speeds, and says which
// GPUs are unavailable and why. It decides nothing, and reads no clock. The queue sees only this
// book: whatever else knows of a holder must come in here.
package ledger
