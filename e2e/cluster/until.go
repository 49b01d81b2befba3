// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"context"
	"time"

	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// Fatal wraps err so that Until gives up at once.
func Fatal(err error) error { return patience.Fatal(err) }

// Until polls a condition until it is true or ctx ends, as [patience.Poll]
// does.
func Until(ctx context.Context, what string, condition func(context.Context) (missing string, err error)) error {
	return patience.Poll(ctx, what, condition)
}

// Pause waits for a time, and returns an error if ctx ends earlier.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
