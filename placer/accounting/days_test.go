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
