// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gpu

import (
	"errors"
	"fmt"
	"time"
)

// ErrNoAnswer is the error of a driver call that takes too long. The call keeps running, and its
// backend cannot shut down before the call returns, so leave the backend open.
var ErrNoAnswer = errors.New("the driver does not answer")

// DriverWithin is the maximum time for the driver to list the GPUs, and for CUDA to start.
const DriverWithin = 20 * time.Second

// Within calls the driver with a time limit, so that a hung driver does not block a command.
func Within[T any](limit time.Duration, doing string, ask func() (T, error)) (v T, err error) {
	done := make(chan struct{})
	var answer T
	var failed error
	go func() {
		defer close(done)
		answer, failed = ask()
	}()
	select {
	case <-done:
		return answer, failed
	case <-time.After(limit):
		return v, fmt.Errorf("%s: %w within %s", doing, ErrNoAnswer, limit)
	}
}

// UntilTick returns the time from now to the next whole multiple of period. Timers that wait for
// multiples of a period fire together and wake the process only once.
func UntilTick(now time.Time, period time.Duration) time.Duration {
	return now.Truncate(period).Add(period).Sub(now)
}
