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

// ScanWithin is a scan for commands that people wait for: a driver that hangs
// must not hang them, for they are asked when something is wrong.
func ScanWithin(limit time.Duration, scan func() (Inventory, error)) (Inventory, error) {
	type answer struct {
		inv Inventory
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		inv, err := scan()
		answers <- answer{inv, err}
	}()
	select {
	case a := <-answers:
		return a.inv, a.err
	case <-time.After(limit):
		return Inventory{}, fmt.Errorf("listing the GPUs: %w within %s", ErrNoAnswer, limit)
	}
}
