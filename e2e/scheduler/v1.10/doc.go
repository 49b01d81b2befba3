// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package scheduler gives the scheduler of Nomad 1.10 the same jobs and expects the same answers as of 1.11.
package scheduler
