// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package patience bounds the waits of tests. The limits are far above the time of any step, also on a
// busy machine. They only turn a hang into an error message.
package patience

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Long is the usual limit of a wait.
const Long = 10 * time.Minute

// Context returns a context that ends after a limit. The context's cause says so.
func Context(parent context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(parent, limit, fmt.Errorf("the wait has lasted %v", limit))
}

// slowest is the minimum weight of time on a starved machine, so that a stopwatch never stands still.
const slowest = 0.1

// pollEvery is the first pause between polls, and is short compared with anything that tests wait
// for. The pause grows up to pollAtLeast if polls take long, or if the wait is already long.
// Polling tests must not use up the CPUs that the awaited processes need.
const pollEvery, pollAtLeast = 25 * time.Millisecond, 500 * time.Millisecond

// pause returns how long to wait before the next poll, given how long the previous poll and the
// wait so far took.
func pause(took, waited time.Duration) time.Duration {
	return min(pollAtLeast, max(pollEvery, 5*took, waited/10))
}

// fatal marks an error that waiting cannot cure.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// Fatal makes Poll and Until return err at once.
func Fatal(err error) error { return fatal{err} }

// Condition returns what is still missing, in words, or "" when the condition holds. An error means
// that the condition does not hold yet, because systems that are starting or stopping return many
// errors. Only an error from Fatal ends the wait.
type Condition func(context.Context) (missing string, err error)

// Poll polls a condition until it holds or ctx ends. The error names what Poll waited for, and what
// was missing last.
func Poll(ctx context.Context, what string, condition Condition) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	last, began := "not looked at yet", time.Now()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w; last: %s", what, context.Cause(ctx), last)
		case <-timer.C:
		}
		asked := time.Now()
		missing, err := condition(ctx)
		switch {
		case errors.As(err, new(fatal)):
			return fmt.Errorf("waiting until %s: %w", what, err)
		case err != nil && ctx.Err() == nil:
			last = err.Error()
		case err == nil && missing == "":
			return nil
		case missing != "":
			last = missing
		}
		timer.Reset(pause(time.Since(asked), time.Since(began)))
	}
}

// Until polls a condition until it holds, or the limit is over.
func Until(parent context.Context, limit time.Duration, what string, condition Condition) error {
	ctx, cancel := Context(parent, limit)
	defer cancel()
	return Poll(ctx, what, condition)
}

// T is the part of testing.T that this package uses.
type T interface {
	Helper()
	Context() context.Context
	Fatal(args ...any)
}

// Eventually waits until something holds, and fails the test if the wait ends first.
func Eventually(t T, what string, ok func() bool) {
	t.Helper()
	if err := Until(t.Context(), Long, what, func(context.Context) (string, error) {
		if ok() {
			return "", nil
		}
		return "not yet", nil
	}); err != nil {
		t.Fatal(err)
	}
}

// Over returns a channel that closes when a test has waited too long for one thing.
func Over(t T) <-chan struct{} {
	ctx, _ := Context(t.Context(), Long) //nolint:govet // it ends with the test
	return ctx.Done()
}
