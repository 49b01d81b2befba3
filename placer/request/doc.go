// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package request reads from a job's text what its gang asks for, by Nomad's own rules of what may
// run where ([View.Request]): eligible nodes and devices, affinities, spreads, members. What
// keeps a job from nodes has a name here ([Obstacle]), and a placement becomes pins here
// ([View.Pins]). It relies on the ledger for what is there and what is free, and makes no requests:
// where only Nomad's scheduler can tell, it asks a [Scheduler].
package request
