// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package pal decides which GPUs a gang gets. The placer, the CLI and the simulator share this
// package. A [Cluster] is the state of the GPUs, and a [Gang] is a request. [Place] returns a
// [Placement], and [Explain] returns a [Decision] with the reasons. The package does no I/O, reads
// no clock and logs nothing. Random choices use either a source that the caller passes in, or the
// gang's ID as the seed. So the same input gives the same decision, byte for byte.
//
// The terms are those of PAL (SC'24, arXiv 2408.11919) and of Nomad:
//
//   - application class: how sensitive a job is to differences between GPUs;
//   - PM score: time on one GPU relative to the median GPU of its model;
//   - variability class: a bin of PM scores, 1 the fastest;
//   - locality tier: how far apart the GPUs of a gang are, each with a penalty;
//   - L×V matrix: penalty × bin value, walked from the cheapest entry;
//   - cost: PM score of the slowest member × locality penalty.
//
// To follow one decision: a [Cluster] (cluster.go) keeps counts of free GPUs up to date. [Place]
// (place.go) tries the preferences of a gang, and for each preference the GPU models that suit the
// gang. Each try is a search (search.go) by the policy: PAL (lvmatrix.go, roomforwide.go), PM-First
// (pmfirst.go) or a baseline (baseline.go). Gangs with spreads are placed member by member
// (spread.go). slowdown.go predicts how much slower the gang runs on the chosen GPUs. [Explain]
// (explain.go) describes the search. The tests compare the searches with exhaustive searches.
//
// Changes of this package must preserve these properties:
//
//   - A Cluster is not safe for concurrent use: even searches share its scratch memory.
//     [Cluster.Clone] gives another goroutine a Cluster of its own. Clones share GPU descriptions,
//     bins, [Speeds] and lists of eligible groups, so these are replaced as a whole and never
//     changed in place.
//   - A search leaves the cluster as it found it. A search can take GPUs while it runs, but
//     releases these GPUs before it returns. The result of a search does not refer to scratch
//     memory.
//   - Counts of free GPUs change only in refresh and countOutliers.
//   - The state hash (statehash.go) covers all state that can change and affects a search.
//     Otherwise the queue would reuse a search that is out of date.
//   - [Gang.Demand] contains all data of a
//     Gang that decide whether a waiting gang fits, except for the class and MaxTier.
package pal
