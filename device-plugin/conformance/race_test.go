// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build race

package conformance_test

// raceDetector builds the plugin under test with the race detector, too.
const raceDetector = true
