// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package agent runs a placer as a daemon: configuration in HCL, leadership
// through a lock in Nomad's variables, and an HTTP API.
package agent
