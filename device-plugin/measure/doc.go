// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package measure times fixed kernels on each GPU, checks the results, and reports the times per
// application class. [Scheduler] measures inside the plugin, on idle GPUs; [Command] is the command
// `nomad-device-pal measure`. README.md in this folder explains what is measured and how, and what
// only hardware can show.
//
// Every change must keep these rules. Only the child process calls CUDA, so that a hung driver
// affects no other process. The scheduler measures only GPUs that are proved to be free (see
// README.md). If a change alters a kernel's time, the version in the kernel's id must change, because
// times with the same id are compared, even times of different releases.
package measure
