// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package heartbeat says whether a placer is at work: to the agent itself, by the [Vitals]
// of its loop, and to everybody else, by a heartbeat that lies in Nomad.
package heartbeat
