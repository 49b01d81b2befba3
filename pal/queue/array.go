// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

// Gangs of an array are jobs of one template, of which a bounded number runs at a time.

// overArray reports whether as many gangs of the gang's array run, or are about to, as may.
func (ts *tenancy) overArray(e *entry) bool {
	if e.job.ArrayParallel <= 0 {
		return false
	}
	return ts.arrays[e.job.Array] >= e.job.ArrayParallel
}

// countJob counts a gang with its user and its array, or (negative) no longer: it runs, is about to,
// or others are being stopped for it.
func (ts *tenancy) countJob(e *entry, sign int) {
	e.of.tenant.countUser(e.job.User, 0, sign)
	if a := e.job.array(); a != "" {
		if ts.arrays[a] += sign; ts.arrays[a] == 0 {
			delete(ts.arrays, a)
		}
	}
}

// array is the name by which gangs share a bound, "" where they have none.
func (j Job) array() string {
	if j.ArrayParallel <= 0 {
		return ""
	}
	return j.Array
}
