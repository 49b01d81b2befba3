// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gpu

import "time"

// UntilTick is the time from now until the clock shows the next whole multiple of
// period. Timers that are set by it fire together and wake the process once, where
// each would wake it at a time of its own.
func UntilTick(now time.Time, period time.Duration) time.Duration {
	return now.Truncate(period).Add(period).Sub(now)
}
