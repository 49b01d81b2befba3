// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gpu

import "time"

// UntilTick returns the time from now to the next whole multiple of period. Timers that wait for
// multiples of a period fire together and wake the process only once.
func UntilTick(now time.Time, period time.Duration) time.Duration {
	return now.Truncate(period).Add(period).Sub(now)
}
