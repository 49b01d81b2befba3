// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"testing"
	"time"
	"unsafe"
)

// While a machine is suspended, its monotonic clock stops, but the lock expires. If somebody sets
// the wall clock back, only the monotonic clock shows that the lock has expired.
func TestHoldsLockByBothClocks(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	for _, c := range []struct {
		name            string
		monotonic, wall time.Duration
		holds           bool
	}{
		{"time passes", ttl - 1, ttl - 1, true},
		{"too much time passes", ttl, ttl, false},
		{"the machine is suspended", 0, ttl, false},
		{"the clock is set back", ttl, -time.Hour, false},
		{"the clock is set back a little", ttl - 1, 0, true},
	} {
		a, now := &Agent{}, time.Now()
		a.holdLock(now.Add(ttl))
		if got := a.holdsLock(withMonotonic(now.Add(c.wall), c.monotonic-c.wall)); got != c.holds {
			t.Errorf("%s: holds the lock: %v, want %v", c.name, got, c.holds)
		}
	}
}

// withMonotonic returns t with its monotonic clock moved by d. Go's package has no function for
// this, because Add moves both clocks.
func withMonotonic(t time.Time, d time.Duration) time.Time {
	wall := t.Round(0)
	(*struct {
		wall uint64
		ext  int64 // the monotonic clock in ns, if a flag in wall says so
	})(unsafe.Pointer(&t)).ext += int64(d)
	if !t.Round(0).Equal(wall) {
		panic("package time has changed")
	}
	return t
}
