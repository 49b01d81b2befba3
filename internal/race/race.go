// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package race tells tests whether the race detector is on, which makes them many times as
// slow: where the same goroutines run in hundreds of cases, a sample of these shows it what they
// share. Without it all cases run, in `make unit` and `make simulations`.
package race

import "hash/fnv"

// oneOf: the sample has one case in this number.
const oneOf = 8

// Skips reports whether a case, given by the name of its test, does not run as the race detector is on.
func Skips(name string) bool {
	h := fnv.New32a()
	h.Write([]byte(name))
	return Enabled && h.Sum32()%oneOf != 0
}

// Sampled is why it does not run.
const Sampled = "a sample of its kind runs under the race detector (make unit runs all)"
