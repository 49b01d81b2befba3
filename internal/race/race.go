// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package race tells tests whether the race detector is on, which makes them many times slower.
// Hundreds of cases run the same goroutines, so a sample of the cases is enough to find races.
// Without the detector all cases run, in `make unit` and `make simulations`.
package race

import "hash/fnv"

// oneOf is the size of the sample: one case in oneOf runs.
const oneOf = 8

// Skips reports whether the case with this name is skipped because the race detector is on.
func Skips(name string) bool {
	h := fnv.New32a()
	h.Write([]byte(name))
	return Enabled && h.Sum32()%oneOf != 0
}

// Sampled is the reason why a case is skipped.
const Sampled = "a sample of its kind runs under the race detector (make unit runs all)"
