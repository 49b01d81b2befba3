// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

// An array is a set of jobs of one template. At most ArrayParallel jobs of an array run at a time.

// overArray reports whether the gang's array already runs its maximum number of jobs.
func (ts *tenancy) overArray(e *entry) bool {
	return e.job.ArrayParallel > 0 && ts.arrays[e.job.Array] >= e.job.ArrayParallel
}

// countJob adds `sign` (1 or -1) to the job counts of the gang's user and array. A gang counts if
// it runs, if it is about to start, or if other gangs are being stopped for it.
func (ts *tenancy) countJob(e *entry, sign int) {
	e.of.tenant.countUser(e.job.User, 0, sign)
	a := e.job.array()
	if a != "" {
		ts.arrays[a] += sign
		if ts.arrays[a] == 0 {
			delete(ts.arrays, a)
		}
	}
}

// array returns the key under which jobs of one array are counted, or "" if the job belongs to no
// array with a limit.
func (j Job) array() string {
	if j.ArrayParallel <= 0 {
		return ""
	}
	return j.Array
}
