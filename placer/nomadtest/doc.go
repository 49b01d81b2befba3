// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nomadtest is an in-memory Nomad for tests of the placer: what a real
// cluster does with jobs, evaluations, allocations, nodes, clients, variables,
// locks and the event stream, as far as the placer sees it, in one deterministic
// object.
//
// A [Server] speaks Nomad's HTTP API. [Server.Config] connects nomad/api, and so
// placer/nomad and the placer itself, without sockets. Time is that of the
// caller: in a testing/synctest bubble it is virtual, and all that happens
// follows from [Options.Seed] and from what the test does. Each request takes a
// time of its own, so that no two arrive at the same instant. What the placer's own
// goroutines do at one instant is Go's choice: a walk replays in most cases, not in
// all.
//
// The package nomadtest/bed has what most tests need: a cluster, authors, placers
// and expectations in one object.
//
// What the model knows, it knows from Nomad 1.11.3. The scenarios of
// nomadtest/scenario run against it and, in e2e, against a real Nomad; what
// differs is a bug of the model.
package nomadtest
