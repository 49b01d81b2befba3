// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package hostile contains malformed and absurd jobs and nodes, for tests of all code that reads
// jobs and nodes. If you find another hostile job or node, add it to this package, and all these
// tests use it.
//
// Nomad 1.11.3 accepts these jobs, or its API returns them. No hostile job or node may cause a
// panic, or change what happens to other jobs and nodes.
package hostile
