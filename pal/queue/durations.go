// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// longestRun is longer than any run of a gang: 100 years. A time.Duration can hold twice this
// duration, but not three times.
const longestRun = 100 * 365 * 24 * time.Hour

// atMostLongest returns a number of nanoseconds as a duration, but at most longestRun. Use it for
// all computed run times and waits, because a cost can be infinite, and users' estimates can be
// arbitrarily long.
func atMostLongest(ns float64) time.Duration {
	if ns < float64(longestRun) {
		return time.Duration(ns)
	}
	return longestRun
}

// seconds returns a number of seconds as a duration, but at most longestRun.
func seconds(s float64) time.Duration { return atMostLongest(s * float64(time.Second)) }

// stretched returns a duration multiplied by a cost, but at most longestRun.
func stretched(d time.Duration, cost float64) time.Duration {
	return atMostLongest(float64(d) * cost)
}

// later returns at + d, but at most the longest time.Duration. Without this bound, the sum could
// overflow if gangs run one after the other for centuries.
func later(at, d time.Duration) time.Duration {
	if d > math.MaxInt64-at {
		return math.MaxInt64
	}
	return at + d
}

// cost returns the gang's run time on the placement divided by its run time at cost 1 with all
// members.
func (e *entry) cost(pl pal.Placement) float64 { return pl.Cost() * e.slower() }

// takes returns the time that the gang needs on the placement for this work. Work is measured as
// time at cost 1.
func (e *entry) takes(work time.Duration, f pal.Found) time.Duration {
	return stretched(work, e.cost(f.Placement))
}
