// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package request reads from a job what its gang requests ([View.Request]): eligible nodes and
// devices, affinities, spreads and members. The package follows Nomad's rules on what can run
// where. The package also finds what keeps a job off nodes ([View.Obstacles]), and turns a placement into
// pins ([View.Pins]). The ledger knows the GPUs, and which of them are free. The package itself
// sends no requests to Nomad. Questions that only Nomad's scheduler can answer go to a [Scheduler].
//
// What must stay true when you change it: Some parts of a job decide where it can run. Either
// eachLack checks such a part, or modelled returns false, so that Nomad's dry run checks it. Each
// part that eachLack reads is also in eligibilityKey, because jobs with equal keys share one
// result. The caches return the same slices each time, because the queue compares gangs by their
// slices.
package request
