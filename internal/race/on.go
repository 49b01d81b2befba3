// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build race

package race

// Enabled reports whether the race detector is on.
const Enabled = true
