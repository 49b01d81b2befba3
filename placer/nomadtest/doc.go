// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nomadtest is an in-memory Nomad for tests of the placer. It models, in one deterministic
// object, how a real cluster handles jobs, evaluations, allocations, nodes, clients, variables,
// locks and the event stream, as far as the placer can see it.
//
// A [Server] serves Nomad's HTTP API. [Server.Config] connects nomad/api to it without sockets, and
// with it placer/nomad and the placer itself. The caller provides the time: in a testing/synctest
// bubble it is virtual, and everything that happens follows from [Options.Seed] and from the
// actions of the test. Each request takes a different time, so no two arrive at the same instant.
// Go decides in which order the placer's own goroutines run at one instant, so most walks replay
// exactly, but not all.
//
// Package nomadtest/bed combines what most tests need in one object: a cluster, authors, placers
// and expectations.
//
// The model follows Nomad 1.11.3. The scenarios of nomadtest/scenario run against it and, in e2e,
// against a real Nomad; any difference is a bug of the model.
//
// What must stay true when you change it: Each random choice and each delayed action has a name, and
// the choice depends only on the seed and that name. So a new action does not change the other
// choices of a walk. All state is read and written with Server.mu held. The model decides by its own
// code where a job may run, because it tests the placer's code for that (feasible.go).
package nomadtest
