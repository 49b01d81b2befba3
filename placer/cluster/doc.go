// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package cluster reads Nomad's objects. The package keeps a copy ([State]) of the nodes,
// allocations and jobs that matter for GPUs, filled from full lists and updated by events. The
// package drops invalid data that nodes and jobs publish, and warns about it. The package decides
// which node owns a GPU that two nodes name, which free GPUs are unusable, and which jobs' pins
// hold GPUs. The package uses placer/rewrite to recognize the gates and pins that the placer wrote
// into jobs. The package sends no requests to Nomad.
//
// What must stay true when you change this package: Objects in a State are replaced, never changed,
// because clones share them. Maps are changed in place, so [State.Clone] copies each map, except
// the inner maps of ByJob, which are copied before their next change. Each node passes through
// sanitize before it enters a State. Each change of a job or of its allocations calls touch.
// Without the call of touch, the placer notices the change only when it next updates all jobs. At a
// full read, [State.Next] or [State.Follow] must copy each field that Nomad's lists do not contain.
package cluster
