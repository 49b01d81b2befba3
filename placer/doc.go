// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package placer runs the cycle that serves gated jobs:
//
//	observe  Nomad's event stream and full lists             (placer/nomad)
//	view     the cluster and the waiting gangs               (placer/model, pure)
//	decide   which gangs start, on which GPUs                (pal/queue and pal, pure)
//	rewrite  the job: gate off, pins on                      (placer/rewrite, pure)
//	commit   by check-and-set register: the one atomic step
//	ready    when all allocations run on exactly these GPUs  (placer/gang, pure)
//	record   the decision with its reasons, for explain: beside the cycles (writebehind.go)
//
// Who holds which GPU is one ledger, the view: it follows from Nomad's state and from
// what is under way, and the queue is told of it. A cycle reads the clock once.
//
// What is known is a [model.Model]; this package acts on it, and on nothing else. It reads
// and writes Nomad, keeps to the order of the steps, and survives what goes wrong.
//
// The way through the code: [Placer.Run] (placer.go) follows Nomad's events and runs a cycle
// when something changed; cycle.go has the steps of a cycle in their order. Each gang is a
// machine (package gang): effects.go feeds it events and carries out what it wants. decide.go
// asks the queue and commits the starts; submission.go accepts jobs that come to the agent
// instead of Nomad. publish.go makes what package query answers from.
//
// Everything is derived from what Nomad says: a placer that dies at any point
// and starts again finds each job in one of the states of [gang.State] and goes on
// from there.
package placer
