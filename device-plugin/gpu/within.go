// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gpu

import (
	"errors"
	"fmt"
	"time"
)

// ErrNoAnswer is the error of a scan that takes too long. The scan goes on, and
// whoever closes its backend waits for it: leave it open.
var ErrNoAnswer = errors.New("the driver does not answer")

// DriverWithin is how long the driver may take to list the GPUs, and CUDA's to start.
const DriverWithin = 20 * time.Second

// Within asks the driver, for commands that people wait for: a driver that hangs
// must not hang them, for they are asked when something is wrong.
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
