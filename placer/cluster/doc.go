// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package cluster reads Nomad's objects. It keeps a copy ([State]) of the nodes, allocations and
// jobs that matter for GPUs, filled from full lists and updated by events. It drops invalid data
// that nodes and jobs publish, and warns about it. It decides which node owns a GPU that several
// nodes name, which GPUs are unusable although Nomad counts them as free, and which jobs' pins hold
// GPUs. It uses placer/rewrite to recognize what the placer wrote into jobs, and makes no requests.
package cluster
