// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package scheduler has only tests. They give Nomad's own scheduler, in process, the jobs that
// nomad-pal writes, and record where it places them. A cluster of real clients cannot show the
// pitfalls of computed classes: Nomad 1.11.3 fingerprints os.signals in random order, which gives
// each real client its own class. Here nodes share a class, as thousands of equal machines do.
//
// It is a separate module because Nomad's scheduler is under the BUSL.
package scheduler
