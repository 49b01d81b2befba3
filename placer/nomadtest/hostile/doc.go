// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package hostile contains malformed and absurd jobs and nodes, for tests of all code that reads
// them. Whoever finds another one adds it here, and all these tests use it.
//
// Nomad 1.11.3 accepts these jobs, or its API returns them. None of them may cause a panic, or
// change what happens to other jobs and nodes.
package hostile
