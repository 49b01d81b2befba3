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
// The view is the single ledger of who holds which GPU. It is derived from Nomad's state and from
// starts under way, and the queue reads it. A cycle reads the clock once.
//
// All that the placer knows is in a [model.Model]. This package reads and writes Nomad, keeps the
// steps in order, and handles errors.
//
// Where to start reading: [Placer.Run] (placer.go) follows Nomad's events and runs a cycle when
// something changed; cycle.go has the steps of a cycle in order. Each gang is a state machine
// (package gang): effects.go feeds it events and carries out its effects. decide.go asks the queue
// and commits the starts. submission.go accepts jobs that are submitted to the agent instead of
// Nomad. publish.go makes the snapshot that package query answers from.
//
// Everything is derived from Nomad's state, so the placer can crash at any time. When it starts
// again, it finds each job in one of the states of [gang.State] and continues from there.
package placer
