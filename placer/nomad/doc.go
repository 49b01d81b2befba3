// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nomad sends requests to Nomad's HTTP API. The package reads full lists and the event
// stream, from which package cluster builds its state. The package also registers jobs with
// check-and-set, makes dry runs, and writes variables. Each request has a time limit. The errors of
// the package show whether Nomad may have carried out the request.
//
// What must stay true when you change this package: If a registration failed although Nomad may
// have carried it out, the error is [ErrUnknownOutcome]. If the outcome of a start is unknown, the
// placer reserves the GPUs of the gang. Bad data of one node or job must not make a list or the
// event stream unreadable. Full reads list the jobs before the allocations ([Client.Resync]).
package nomad
