// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// ShortDuration formats a duration without zero parts, for example as 36h instead of 36h0m0s.
func ShortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Round3 formats a number with three significant digits; from 100 on, it rounds to a whole number.
func Round3(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", math.Max(0, x))
}

// Days formats a duration, in days if it is a whole number of days.
func Days(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == day:
		return "a day"
	case d > day && d%day == 0:
		return fmt.Sprintf("%d days", d/day)
	}
	return ShortDuration(d)
}

// Clock formats a time in a zone, with the zone's name; the zero time becomes "".
func Clock(zone *time.Location, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(zone).Format("2006-01-02 15:04:05 MST")
}

// When formats a time in the zone of now, with its distance from now; the zero time becomes "".
func When(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := t.Sub(now)
	if d > 0 {
		return Clock(now.Location(), t) + " (in " + About(d) + ")"
	}
	return Clock(now.Location(), t) + " (" + Ago(t, now) + ")"
}

// About formats a duration, rounded, in the largest unit that fits into the duration at least
// twice. For example, 47 hours stay hours, because "2d" would be less precise.
func About(d time.Duration) string {
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

// Ago formats the time since t; the zero time becomes "".
func Ago(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return About(max(0, now.Sub(t))) + " ago"
}

// Span formats the range of times in which an event is expected, with its distance from now.
func Span(from, to, now time.Time) string {
	from, to = from.In(now.Location()), to.In(now.Location())
	switch {
	case !to.After(now):
		return "now"
	case to.Sub(from) < time.Second:
		return When(to, now)
	case from.YearDay() == to.YearDay() && from.Year() == to.Year():
		return fmt.Sprintf("%s–%s (in %s)", from.Format("2006-01-02 15:04:05"), to.Format("15:04:05 MST"), reach(from, to, now))
	}
	return fmt.Sprintf("%s – %s (in %s)", from.Format("2006-01-02 15:04 MST"), to.Format("2006-01-02 15:04 MST"), reach(from, to, now))
}

// reach formats how far the two ends of a span are from now: "5m–11m".
func reach(from, to, now time.Time) string {
	near, far := About(max(0, from.Sub(now))), About(max(0, to.Sub(now)))
	if near == far {
		return far
	}
	if !from.After(now) {
		near = "0"
	}
	return near + "–" + far
}

// Soon formats a span for a table, without dates; an unknown span becomes "".
func Soon(from, to, now time.Time) string {
	if to.IsZero() {
		return ""
	}
	if !to.After(now) {
		return "now"
	}
	return "in " + reach(from, to, now)
}
