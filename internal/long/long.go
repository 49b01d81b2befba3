// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package long decides how many cases a test runs. Tests with many cases of one
// kind run a sample in `make test` and all cases in `make test-long`.
package long

import (
	"os"
	"strconv"
	"time"
)

// All reports whether all cases should run.
func All() bool { return os.Getenv("TEST_LONG") != "" }

// Skips reports whether a case is outside the sample. n and k are the indexes of the case's two
// parameters; k is less than of. The sample has one case for each n. If n takes at least as many
// values as k, each k occurs in the sample.
func Skips(n, k, of int) bool { return !All() && n%of != k }

// Over reports whether the time for long tests, which ends at TEST_LONG_UNTIL (Unix seconds), is
// over.
func Over() bool {
	until, err := strconv.ParseInt(os.Getenv("TEST_LONG_UNTIL"), 10, 64)
	return err == nil && time.Now().Unix() >= until
}

// Sampled is the reason why a test outside the sample is skipped.
const Sampled = "only a sample of these tests runs (make test-long runs all)"

// NoTime is the reason why a long test is skipped.
const NoTime = "the time for long tests is over (make test-long has no limit without TEST_LONG_UNTIL)"
