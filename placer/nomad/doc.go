// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nomad talks to Nomad's HTTP API: full lists and the event stream, which fill the state of
// package cluster, registrations by check-and-set, dry runs, variables. It bounds how long a request
// may take, and says of an error whether Nomad did what was asked, or may have.
package nomad
