// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package hostile contains malformed and absurd jobs and nodes. All tests of code that reads jobs
// or nodes use this package. If you find another hostile job or node, add it to this package. All
// tests that use the package then use the new job or node.
//
// Nomad 1.11.3 accepts the hostile jobs, or its API returns them. No hostile job or node may cause
// a panic, or affect other jobs and nodes.
package hostile
