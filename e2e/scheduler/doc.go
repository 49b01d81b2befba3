// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package scheduler holds tests only: they give Nomad's own scheduler, in process, the jobs that nomad-pal writes,
// and record where it places them. A cluster of real clients cannot show the traps in computed classes, because
// Nomad 1.11.3 fingerprints os.signals in random order and so gives every real client a class of its own; here
// nodes share one, as thousands of equal machines do.
//
// It is a module of its own because Nomad's scheduler is under the BUSL.
package scheduler
