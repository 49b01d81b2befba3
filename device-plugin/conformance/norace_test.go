// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build !race

package conformance_test

// raceDetector is false, as for this test binary.
const raceDetector = false
