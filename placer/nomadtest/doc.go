// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nomadtest is an in-memory Nomad for tests of the placer. The package simulates, in one
// deterministic object, how a real cluster handles jobs, evaluations, allocations, nodes, clients,
// variables, locks and the event stream. The package simulates only what the placer can see.
//
// A [Server] serves Nomad's HTTP API. [Server.Config] connects nomad/api to the server without
// sockets. The placer uses placer/nomad, which uses nomad/api, so both are connected, too. The
// caller provides the clock. In a testing/synctest bubble, time is virtual, and everything that
// happens depends only on [Options.Seed] and on the actions of the test. Each request takes a
// different time, so no two requests arrive at the same moment. But if several goroutines of the
// placer can run at the same moment, Go chooses their order. So not every walk can be replayed
// exactly, but most can.
//
// Package nomadtest/bed provides one object that contains what most tests need: a cluster, authors,
// placers and expectations.
//
// The simulation follows Nomad 1.11.3. The scenarios of nomadtest/scenario run on this package and,
// in e2e, on a real Nomad. Any difference between the two is a bug in this package.
//
// What must stay true when you change this package: Each random choice and each delayed action has
// a name, and its outcome depends only on the seed and this name. So a new action in the code does
// not change the other choices in a walk. Server.mu is held whenever state is read or written. The
// package has its own code that decides where a job can run (feasible.go), because it tests the
// placer's code for the same decision.
package nomadtest
