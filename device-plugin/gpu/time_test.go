// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gpu

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		begin := time.Now()
		_, err := Within(20*time.Second, "listing the GPUs", func() (Inventory, error) { <-release; return Inventory{}, nil })
		if !errors.Is(err, ErrNoAnswer) || time.Since(begin) != 20*time.Second {
			t.Errorf("a scan that hangs: %v after %s", err, time.Since(begin))
		}
		close(release)
		inv, err := Within(time.Second, "listing the GPUs", func() (Inventory, error) { return Inventory{DriverVersion: "580"}, nil })
		if err != nil || inv.DriverVersion != "580" {
			t.Errorf("a scan: %+v, %v", inv, err)
		}
	})
}

// Timers that were set at different times fire at the same time.
func TestUntilTick(t *testing.T) {
	whole := time.Date(2026, 11, 22, 1, 2, 3, 0, time.FixedZone("", 5400))
	for _, tc := range []struct {
		after, period, want time.Duration
	}{
		{0, time.Second, time.Second},
		{1, time.Second, time.Second - 1},
		{300 * time.Millisecond, time.Second, 700 * time.Millisecond},
		{999999999, time.Second, 1},
		{300 * time.Millisecond, 5 * time.Second, 1700 * time.Millisecond},
		{time.Second, 100 * time.Millisecond, 100 * time.Millisecond},
	} {
		if got := UntilTick(whole.Add(tc.after), tc.period); got != tc.want {
			t.Errorf("%s after a whole second, period %s: %s, want %s", tc.after, tc.period, got, tc.want)
		}
	}
	if d := UntilTick(time.Now(), time.Second); d <= 0 || d > time.Second {
		t.Errorf("the next whole second comes in %s", d)
	}
}
