// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"math"
	"testing"
	"time"
)

// A heat sink warms up for one to two minutes, and NVML reports whole degrees. The GPU
// counts as warm when little is left, but not in the seconds between two degrees.
func TestWarm(t *testing.T) {
	plan := DefaultPlan()
	for _, tc := range []struct {
		name      string
		temp      func(seconds float64) float64
		from, til time.Duration // it becomes warm between these times
	}{
		{"at once", func(float64) float64 { return 60 }, 59 * time.Second, 61 * time.Second},
		{"in a minute", func(s float64) float64 { return 70 - 40*math.Exp(-s/20) }, 75 * time.Second, 150 * time.Second},
		{"in two minutes", func(s float64) float64 { return 70 - 40*math.Exp(-s/40) }, 130 * time.Second, 4 * time.Minute},
		{"slow and steady", func(s float64) float64 { return 40 + 0.05*s }, math.MaxInt64, 0},
		{"it cools", func(s float64) float64 { return 80 - 0.05*s }, 59 * time.Second, 61 * time.Second},
	} {
		begin := time.Now()
		var rs []reading
		at := time.Duration(math.MaxInt64)
		for d := time.Duration(0); d < 6*time.Minute; d += telemetryPeriod {
			rs = append(rs, reading{at: begin.Add(d), tempC: new(math.Floor(tc.temp(d.Seconds())))})
			if plan.warm(begin.Add(d), rs) {
				at = d
				break
			}
		}
		if at < tc.from || tc.til > 0 && at > tc.til {
			t.Errorf("%s: warm after %s, want between %s and %s", tc.name, at, tc.from, tc.til)
		}
		if at < math.MaxInt64 {
			rise := tc.temp(at.Seconds()+60) - tc.temp(at.Seconds())
			if rise > 2 {
				t.Errorf("%s: counts as warm after %s, but gets %.1f °C hotter in the next minute", tc.name, at, rise)
			}
		}
	}
	now := time.Now()
	heating := []reading{{at: now.Add(-time.Second), tempC: new(40.0)}, {at: now, tempC: new(41.0)}}
	if plan.Heat = 0; !plan.warm(now, heating) {
		t.Error("a plan without heat waits for it")
	}
	if plan = DefaultPlan(); plan.warm(now, heating) {
		t.Error("a rise of one degree per second counts as warm")
	}
	if !plan.warm(now, nil) || !plan.warm(now, []reading{{at: now}}) {
		t.Error("without temperatures a GPU is never warm")
	}
}
