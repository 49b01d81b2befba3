// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build !race

// Package race tells tests whether the race detector is at work, which makes them
// many times as slow: those that go through thousands of cases take a sample then,
// and all of them in `make simulations`.
package race

// Enabled says whether the race detector is at work.
const Enabled = false
