// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"time"
)

// clock is a time in the reader's zone, and says which that is.
func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 MST") }

// when is a time, and how far from now it is.
func when(t, now time.Time) string {
	if d := t.Sub(now); d > 0 {
		return clock(t) + " (in " + about(d) + ")"
	}
	return clock(t) + " (" + ago(t, now) + ")"
}

// about is a duration in the largest unit of which it has two: 47h say more than 2d do.
func about(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= 2*u.unit {
			return fmt.Sprintf("%d%s", int((d+u.unit/2)/u.unit), u.name)
		}
	}
	return fmt.Sprintf("%ds", int((d+time.Second/2)/time.Second))
}

// ago is how long a time has passed, "" for one that never was.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return about(max(0, now.Sub(t))) + " ago"
}

// span is between when something is expected.
func span(from, to, now time.Time) string {
	from, to = from.Local(), to.Local()
	switch {
	case !to.After(now):
		return "now"
	case to.Sub(from) < time.Second:
		return when(to, now)
	case from.YearDay() == to.YearDay() && from.Year() == to.Year():
		return fmt.Sprintf("%s–%s (in %s)", from.Format("2006-01-02 15:04:05"), to.Format("15:04:05 MST"), reach(from, to, now))
	}
	return fmt.Sprintf("%s – %s (in %s)", from.Format("2006-01-02 15:04 MST"), to.Format("2006-01-02 15:04 MST"), reach(from, to, now))
}

// reach is how far away a span is.
func reach(from, to, now time.Time) string {
	near, far := about(max(0, from.Sub(now))), about(max(0, to.Sub(now)))
	if near == far {
		return far
	}
	if !from.After(now) {
		near = "0"
	}
	return near + "–" + far
}

// soon is a span in a table, without its dates; "" for one that nobody knows.
func soon(from, to, now time.Time) string {
	if to.IsZero() {
		return ""
	}
	if !to.After(now) {
		return "now"
	}
	return "in " + reach(from, to, now)
}
