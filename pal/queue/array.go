// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

// Gangs of an array are jobs of one template, of which a bounded number runs at a time.

// overArray says whether as many gangs of the gang's array run, or are about to, as may.
func (p *pass) overArray(e *entry) bool {
	if e.job.ArrayParallel <= 0 {
		return false
	}
	n := p.arrays[e.job.Array]
	for _, c := range p.Queue.claims { // others are being stopped for them
		if c.by.state == waiting && c.by.job.Array == e.job.Array {
			n++
		}
	}
	return n >= e.job.ArrayParallel
}

// array is the name by which gangs share a bound, "" where they have none.
func (j Job) array() string {
	if j.ArrayParallel <= 0 {
		return ""
	}
	return j.Array
}
