// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"testing"
	"time"
)

// Times beyond 64 bits of nanoseconds keep their order, and stay so far below the limit that adding
// a century does not overflow.
func TestQueueTime(t *testing.T) {
	last := time.Duration(0)
	for _, year := range []int{1, 1066, 1960, 2026, 2140, 2262, 2263, 9999} {
		at := time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)
		is := QueueTime(at)
		if is < last || is <= 0 || is+100*365*24*time.Hour < 0 {
			t.Errorf("the year %d is %d, after %d", year, is, last)
		}
		if year == 2026 && !time.Unix(0, int64(is)).Equal(at) {
			t.Errorf("%v is %v", at, time.Unix(0, int64(is)))
		}
		last = is
	}
}
