// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"testing"
)

// A bug that one of many reads meets is met where it can be survived: in a goroutine
// of its own it would end the process.
func TestParallelPanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if r := recover(); r != "seven" {
			t.Errorf("recovered %v", r)
		}
	}()
	err := parallel(t.Context(), 100, func(_ context.Context, i int) error {
		if i == 7 {
			panic("seven")
		}
		return nil
	})
	t.Errorf("no panic: %v", err)
}
