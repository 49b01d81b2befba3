// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package cluster reads Nomad's objects: it keeps a copy ([State]) of the nodes,
// allocations and jobs that matter for GPUs, filled from full lists and kept up
// to date by events. It keeps what makes sense of what nodes and jobs publish
// and warns about the rest. It decides which node owns a GPU that several name,
// which GPUs are unusable although Nomad counts them as free, and whose pins
// count. It relies on placer/rewrite for what the placer wrote into jobs, and
// makes no requests.
package cluster
