// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import "time"

// clock is the placer's own time: it goes on with the machine's monotonic clock,
// and never back. A wall clock that is set back does not stop what waits for a time
// to come; one that is set forward is followed. It is read once a cycle.
type clock struct {
	wall func() time.Time
	mono func() time.Duration // since whenever
	read time.Duration        // mono, when it was read last
	at   time.Time            // what it said then
}

func newClock() clock {
	began := time.Now()
	return clock{wall: time.Now, mono: func() time.Duration { return time.Since(began) }}
}

// now is the time now, of the wall clock's kind.
func (c *clock) now() time.Time {
	wall, mono := c.wall().Round(0), c.mono()
	c.at, c.read = c.at.Add(mono-c.read), mono
	if wall.After(c.at) {
		c.at = wall
	}
	return c.at
}
