// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import (
	"testing"
	"time"
)

// Reports add up more GPU time than a time.Duration holds, which is 2.6 million GPU hours: a
// cluster of 1,000 GPUs uses that in four months.
func TestUsageOfLargeClusters(t *testing.T) {
	days := map[dayKey]sums{}
	for i := range 1000 {
		began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		Alloc{Held: 100, From: began, Model: "m", User: string(rune('a' + i%3))}.addTo(days, began, began.AddDate(1, 0, 0))
	}
	if u := lines(days, nil)[0]; u.GPUHours != 1000*100*365*24 {
		t.Errorf("%v GPU hours", u.GPUHours)
	}
}

// GPU time that is held in vain is divided among days, as all GPU time is.
func TestVainTimeByDay(t *testing.T) {
	days, began := map[dayKey]sums{}, time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	a := Alloc{Held: 1, From: began, Vain: began.Add(15 * time.Hour)}
	a.addTo(days, began, began.Add(24*time.Hour))
	for day, want := range map[time.Time]time.Duration{began: 12 * time.Hour, began.AddDate(0, 0, 1): 3 * time.Hour} {
		if got := days[a.dayKey(dayOf(day))][vainTime]; got != want.Milliseconds() {
			t.Errorf("%s: %d ms in vain, want %v", day.Format(time.DateOnly), got, want)
		}
	}
}
