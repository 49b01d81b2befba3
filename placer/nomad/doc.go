// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nomad talks to Nomad's HTTP API: full lists and the event stream, which fill the state of
// package cluster, check-and-set registrations, dry runs and variables. It bounds how long a
// request may take. Its errors tell whether Nomad did what was requested, or may have.
package nomad
