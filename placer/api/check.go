// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

// Verdict is the result of a check.
type Verdict string

// The verdicts.
const (
	OK   Verdict = "OK"
	Warn Verdict = "WARN"
	Fail Verdict = "FAIL"
)

// Check is the result of one check of nomad-pal doctor.
type Check struct {
	Name    string  `json:"name"`    // what was checked
	Verdict Verdict `json:"verdict"` // OK, WARN or FAIL
	Found   string  `json:"found"`   // what the check found
	// Next is what to do; "" if there is nothing to do.
	Next string `json:"next,omitempty"`
}
