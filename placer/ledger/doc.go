// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package ledger is the book of who holds which GPU ([Ledger]): a pal.Cluster that is derived from
// the state of package cluster and follows its changes. A job holds the GPUs of its live
// allocations, those that its pins promise and those that a decision under way gave it.
package ledger
