// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package scheduler has only tests, which pass jobs written by nomad-pal to Nomad's own scheduler,
// in process, and record where the scheduler places the jobs. A cluster of real clients cannot show
// the pitfalls of computed classes. Nomad 1.11.3 fingerprints os.signals in random order, so each
// real client has its own class. Here nodes share a class, like thousands of equal machines.
//
// The package is a separate module because Nomad's scheduler is under the BUSL.
package scheduler
