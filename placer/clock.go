// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"errors"
	"fmt"
	"time"
)

// clock is the placer's own time: it goes on with the machine's monotonic clock,
// and never back. A wall clock that is set back a little does not stop what waits for a time
// to come; one that is set forward is followed. It is read once a cycle. A placer whose wall
// clock is set back for good begins anew, with a new clock: see [ErrClockSetBack].
type clock struct {
	wall func() time.Time
	mono func() time.Duration // since whenever
	read time.Duration        // mono, when it was read last
	at   time.Time            // what it said then
	// ahead is by how much that was ahead of wall.
	ahead time.Duration
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
	c.ahead = c.at.Sub(wall)
	return c.at
}

// mostAhead is by how much the clock may be ahead of the wall clock.
const mostAhead = time.Minute

// ErrClockSetBack ends [Placer.Run]: by its clock windows would open, and quarantines end, at
// the wrong time for as long as it ran. All that it knows is in Nomad: a new placer goes on.
var ErrClockSetBack = errors.New("this machine's clock was set back")

// setBack is an error if the wall clock was set back by much.
func (c *clock) setBack() error {
	if c.ahead <= mostAhead {
		return nil
	}
	return fmt.Errorf("%w by %s", ErrClockSetBack, c.ahead.Round(time.Second))
}
