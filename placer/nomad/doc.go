// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nomad talks to Nomad's HTTP API. It reads full lists and the event stream, which fill the
// state of package cluster. It makes check-and-set registrations, dry runs and writes of variables.
// It limits how long a request may take. Its errors tell whether Nomad has carried out, or may have
// carried out, the request.
//
// What must stay true when you change it: If a registration failed but Nomad may have carried it
// out, the error is [ErrUnknownOutcome], because the placer then reserves the GPUs of a start. Bad
// data of one node or job must not make a list or the event stream unreadable. Full reads list jobs
// before allocations ([Client.Resync]).
package nomad
