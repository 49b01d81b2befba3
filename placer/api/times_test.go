// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import (
	"testing"
	"time"
)

// Times are shown with their zone and how far away they are.
func TestWhen(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 23, 0, 0, 0, time.FixedZone("CET", 3600))
	at := func(d time.Duration) time.Time { return now.Add(d).UTC() }
	for want, got := range map[string]string{
		"2026-11-21 23:00:00 CET (0s ago)":                        When(now, now),
		"2026-11-27 23:00:00 CET (in 6d)":                         When(at(144*time.Hour), now),
		"2026-11-21 21:30:00 CET (90m ago)":                       When(at(-90*time.Minute), now),
		"now":                                                     Span(now, now, now),
		"2026-11-21 23:10:00–23:20:00 CET (in 10m–20m)":           Span(at(10*time.Minute), at(20*time.Minute), now),
		"2026-11-22 23:00 CET – 2026-11-24 23:00 CET (in 24h–3d)": Span(at(24*time.Hour), at(72*time.Hour), now),
		"in 0–60s":                                                Soon(now, at(time.Minute), now),
		"in 5d":                                                   Soon(at(120*time.Hour), at(121*time.Hour), now),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
