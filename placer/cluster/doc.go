// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package cluster is what Nomad's objects say: a copy of the nodes, allocations and jobs that
// matter for GPUs ([State]), filled from full lists and kept up to date by events. Of what nodes and
// jobs publish it takes what makes sense and warns of the rest. Which node owns a GPU that several
// name, which GPUs cannot be used although Nomad counts them as free, and whose pins count stands
// here, too. It relies on placer/rewrite for what the placer wrote into jobs, and makes no requests.
package cluster
