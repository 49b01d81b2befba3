// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"errors"
	"fmt"
	"time"
)

// clock is the placer's own clock. The clock follows the machine's monotonic clock, and never goes
// back. So if somebody sets the wall clock back a little, no wait becomes longer. If somebody sets
// the wall clock forward, the clock follows. If somebody sets the wall clock back by more than
// [mostAhead], the placer ends and starts again with a new clock (see [ErrClockSetBack]).
type clock struct {
	wall func() time.Time
	mono func() time.Duration // monotonic time since an arbitrary instant
	read time.Duration        // mono when the clock was last read
	at   time.Time            // the clock's time when it was last read
	// ahead is how far the clock was ahead of the wall clock when it was last read.
	ahead time.Duration
}

func newClock() clock {
	began := time.Now()
	return clock{wall: time.Now, mono: func() time.Duration { return time.Since(began) }}
}

// now returns the current time, which can be compared with times of the wall clock.
func (c *clock) now() time.Time {
	wall, mono := c.wall().Round(0), c.mono()
	c.at, c.read = c.at.Add(mono-c.read), mono
	if wall.After(c.at) {
		c.at = wall
	}
	c.ahead = c.at.Sub(wall)
	return c.at
}

// mostAhead is the largest lead of the clock over the wall clock. If the lead becomes larger, the
// placer ends.
const mostAhead = time.Minute

// ErrClockSetBack ends [Placer.Run]. If the placer kept a clock that is far ahead, windows would
// open and quarantines would end at wrong times. A new placer with a new clock can continue the
// work, because everything that the placer must know is in Nomad.
var ErrClockSetBack = errors.New("this machine's clock was set back")

// setBack returns an error if the wall clock was set back by more than mostAhead.
func (c *clock) setBack() error {
	if c.ahead <= mostAhead {
		return nil
	}
	return fmt.Errorf("%w by %s", ErrClockSetBack, c.ahead.Round(time.Second))
}
