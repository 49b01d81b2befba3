// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nomad talks to Nomad's HTTP API: full lists and the event stream, which fill the state of
// package cluster, check-and-set registrations, dry runs and variables. It limits how long a
// request may take. Its errors say whether Nomad carried out the request, or may have.
package nomad
