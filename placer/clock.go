// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"errors"
	"fmt"
	"time"
)

// clock is the placer's own clock. clock follows the machine's monotonic clock and never goes back.
// So if the wall clock is set back a little, no wait becomes longer. If the wall clock is set
// forward, clock follows. If the wall clock is set back by more than [mostAhead], the placer ends
// and starts again with a new clock: see [ErrClockSetBack].
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

// now returns the current time, comparable with the wall clock.
func (c *clock) now() time.Time {
	wall, mono := c.wall().Round(0), c.mono()
	c.at, c.read = c.at.Add(mono-c.read), mono
	if wall.After(c.at) {
		c.at = wall
	}
	c.ahead = c.at.Sub(wall)
	return c.at
}

// mostAhead is how far the clock can be ahead of the wall clock before the placer ends.
const mostAhead = time.Minute

// ErrClockSetBack ends [Placer.Run]. If the placer kept its old clock, windows would open and
// quarantines would end at wrong times. A new placer with a new clock can continue, because Nomad
// stores everything that the placer knows.
var ErrClockSetBack = errors.New("this machine's clock was set back")

// setBack returns an error if the wall clock was set back by more than mostAhead.
func (c *clock) setBack() error {
	if c.ahead <= mostAhead {
		return nil
	}
	return fmt.Errorf("%w by %s", ErrClockSetBack, c.ahead.Round(time.Second))
}
