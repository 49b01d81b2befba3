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
//	record   the decision with its reasons, for explain: in the background (writebehind.go)
//
// The view is the single ledger of who holds which GPU. The view is derived from Nomad's state and
// from starts that are not complete. The queue reads the view. All decisions of a cycle use one
// time, model.Model.Time. The cycle reads the clock again only after it has waited for Nomad.
//
// Everything that the placer knows is in a [model.Model]. This package reads and writes Nomad,
// keeps the steps in order, and handles errors.
//
// Where to start reading: [Placer.Run] (placer.go) follows Nomad's events, and runs a cycle when
// something has changed. cycle.go contains the steps of a cycle in order. Each gang is a state
// machine (package gang). effects.go delivers events to the gangs and carries out their effects.
// decide.go asks the queue and commits the starts. publish.go makes the snapshot from which package
// query answers.
//
// Everything is derived from Nomad's state, so the placer can crash at any time. When the placer
// starts again, it finds each job in one of the states of package api, and continues from there.
//
// What must stay true when you change this package:
//
//   - Rewritten jobs (with pins, with a gate) are registered only by check-and-set over the version
//     on which the placer decided.
//   - The queue decides only after each gang has told it what changed (catchUp before decide).
//   - Only the goroutine of [Placer.Run] changes the model. Other goroutines read snapshots, or
//     send their requests through channels. Commits run in parallel, and each changes only its own
//     gang.
//   - Data on which a later decision depends is written within the cycle. All other data is written
//     in the background.
//   - Work on one job is done between BeginJob and EndJob of the model. So if this work panics,
//     only that job is isolated, and the placer continues without it.
package placer
