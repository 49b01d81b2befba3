// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nomad talks to Nomad's HTTP API. It reads full lists and the event stream, from which
// package cluster builds its state. It registers jobs with check-and-set, makes dry runs, and
// writes variables. It limits how long a request can take. Its errors show whether Nomad may have
// carried out the request.
//
// What must stay true when you change it: If a registration failed but Nomad may have carried it
// out, the error is [ErrUnknownOutcome]. If such a registration would start a gang, the placer
// reserves the gang's GPUs. Bad data of one node or job must not make a list or the event stream
// unreadable. Full reads list jobs before allocations ([Client.Resync]).
package nomad
