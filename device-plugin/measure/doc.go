// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package measure times fixed kernels on each GPU, or a program of the user's, checks what they
// compute, and reports the times per application class. The GPU is used by a child process, so that
// a hung driver takes nothing else with it. [Scheduler] does so inside the plugin, on GPUs that
// nothing uses; the command `nomad-device-pal measure` by hand. README.md beside this file says what
// is measured and how, and what only hardware can show.
package measure
