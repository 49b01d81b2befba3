// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package query answers what the commands, the API and the page ask: where a job stands and
// why, what it waits for and until when, who holds the GPUs, what would change that. All
// answers come from one [Snapshot] of the cluster; placer.ReadSnapshot makes them.
//
// Answering changes nothing. Only what Nomad keeps of a single job, its record and its
// evaluations, is read when somebody asks for it.
package query
