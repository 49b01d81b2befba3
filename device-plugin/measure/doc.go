// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package measure times fixed kernels, or a user's program, on each GPU, checks the results, and
// reports the times per application class. [Scheduler] measures inside the plugin, on idle GPUs;
// [Command] is the command `nomad-device-pal measure`. README.md in this folder describes what is
// measured and how, and what only real hardware can show.
//
// Every change must keep these rules. Only the child process calls CUDA, so that a hung driver
// affects no other process. The scheduler measures only GPUs that are proved to be free (see
// README.md). If a kernel's time changes, the version in the kernel's id must change, because times
// of different releases are compared by key.
package measure
