// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nomadtest is an in-memory Nomad for tests of the placer. It models, in one deterministic
// object, how a real cluster handles jobs, evaluations, allocations, nodes, clients, variables,
// locks and the event stream, as far as the placer can see it.
//
// A [Server] serves Nomad's HTTP API. [Server.Config] connects nomad/api to the server without
// sockets, and with nomad/api also placer/nomad and the placer. The caller provides the time. In a
// testing/synctest bubble the time is virtual, and everything that happens follows from
// [Options.Seed] and from the actions of the test. Each request takes a different time, so no two
// requests arrive at the same instant. But Go decides in which order the placer's own goroutines
// run at one instant, so most walks replay exactly, but not all.
//
// Package nomadtest/bed combines what most tests need in one object: a cluster, authors, placers
// and expectations.
//
// The model follows Nomad 1.11.3. The scenarios of nomadtest/scenario run against the model and, in
// e2e, against a real Nomad. Any difference is a bug of the model.
//
// What must stay true when you change it: Each random choice and each delayed action has a name,
// and its outcome depends only on the seed and this name. So a new action does not change the other
// choices of a walk. All state is read and written with Server.mu held. The model decides with its
// own code where a job can run (feasible.go), because it tests the placer's code for the same
// decision.
package nomadtest
