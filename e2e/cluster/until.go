// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pollEvery is short against anything Nomad does and long against what a poll costs it.
const pollEvery = 25 * time.Millisecond

// fatal marks an error that no waiting will cure.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// Fatal makes Until give up with err at once.
func Fatal(err error) error { return fatal{err} }

// Until polls a condition until it holds or ctx ends. The condition returns what is still missing, in words, and ""
// when it holds. An error counts as missing, too, because a cluster in motion gives many, unless it comes from Fatal.
// The error of Until names what was waited for and the last word on what was missing.
func Until(ctx context.Context, what string, condition func(context.Context) (missing string, err error)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	last := "not looked at yet"
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w; last: %s", what, context.Cause(ctx), last)
		case <-timer.C:
		}
		missing, err := condition(ctx)
		switch {
		case errors.As(err, new(fatal)):
			return fmt.Errorf("wait until %s: %w", what, err)
		case err != nil && ctx.Err() == nil:
			last = err.Error()
		case err == nil && missing == "":
			return nil
		case missing != "":
			last = missing
		}
		timer.Reset(pollEvery)
	}
}

// Pause waits for a time, or until ctx ends, which is an error.
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
