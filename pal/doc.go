// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package pal decides which GPUs a gang gets. It is the pure core that the
// placer, the CLI and the simulator share: a [Cluster] holds what is, a [Gang]
// says what is wanted, [Place] returns a [Placement], and [Explain] a [Decision] with the
// reasons. No I/O, no clock, no logging, no randomness that is not passed in: the same
// input gives the same decision, byte for byte.
//
// The words are those of PAL (SC'24, arXiv 2408.11919) and of Nomad:
//
//   - application class: how sensitive a job is to differences between GPUs;
//   - PM score: time on one GPU relative to the median GPU of its model;
//   - variability class: a bin of PM scores, 1 the fastest;
//   - locality tier: how far apart the GPUs of a gang are, each with a penalty;
//   - L×V matrix: penalty × bin value, walked from the cheapest entry;
//   - cost: PM score of the slowest member × locality penalty.
//
// To follow one decision: a [Cluster] (cluster.go) keeps counts of free GPUs up to
// date. [Place] (place.go) tries the preferences of a gang, and for each the GPU
// models that would do. Each try is a search (search.go) by the policy: PAL (lvmatrix.go,
// roomforwide.go), PM-First (pmfirst.go) or a baseline (baseline.go); gangs to be spread are placed
// member by member (spread.go). How much slower the gang runs there says slowdown.go. [Explain] (explain.go) tells how it went. The tests
// compare the searches with plain ones that try everything.
package pal
