// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nomad adapts Nomad's HTTP API to the core: it keeps a copy of the
// nodes, allocations and jobs that matter for GPUs ([State], fed by full lists
// and the event stream), turns it into a pal.Cluster and jobs into pal.Gangs
// with Nomad's own rules of what may run where ([View]), and writes back: jobs
// by check-and-set, variables.
package nomad
