// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package measure times fixed kernels, or a user's program, on each GPU, checks the
// results, and reports the times per application class. A child process uses the GPU, so
// that a hung driver affects nothing else. [Scheduler] measures inside the plugin, on idle
// GPUs; the command `nomad-device-pal measure` by hand. README.md in this folder says what
// is measured and how, and what only hardware can show.
package measure
