// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"errors"
	"testing"
	"time"
)

// The placer's clock follows the wall clock forward, and continues if the wall clock is set back:
// waits end, and no time occurs twice. If it is far ahead, it returns an error.
func TestClock(t *testing.T) {
	wall, mono := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC), time.Hour
	c := clock{wall: func() time.Time { return wall }, mono: func() time.Duration { return mono }}
	began := wall
	for _, s := range []struct {
		name    string
		passes  time.Duration
		step    time.Duration // how far the wall clock is set in addition
		elapsed time.Duration // by the placer's clock, since the start
		setBack bool
	}{
		{"at first", 0, 0, 0, false},
		{"a minute", time.Minute, 0, time.Minute, false},
		{"set back by an hour", time.Minute, -time.Hour, 2 * time.Minute, true},
		{"another minute", time.Minute, 0, 3 * time.Minute, true},
		{"set right again", time.Minute, time.Hour, 4 * time.Minute, false},
		{"set forward by an hour", time.Minute, time.Hour, time.Hour + 5*time.Minute, false},
		{"and back", time.Minute, -time.Hour, time.Hour + 6*time.Minute, true},
		{"an hour and a half later", 90 * time.Minute, 0, 2*time.Hour + 36*time.Minute, true},
	} {
		wall, mono = wall.Add(s.passes+s.step), mono+s.passes
		if got := c.now().Sub(began); got != s.elapsed {
			t.Errorf("%s: %v after the start, want %v", s.name, got, s.elapsed)
		}
		if err := c.setBack(); errors.Is(err, ErrClockSetBack) != s.setBack {
			t.Errorf("%s: %v", s.name, err)
		}
	}
}
