// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// elect runs lead whenever this agent holds the lock, until ctx ends. lead ends
// before the lock can be anybody else's; check-and-set commits would make even
// two that lead at once harmless.
//
// Nomad's own LockLeaser is not used: it goes on with what it protects after
// the lock was lost, and panics when both end at the same time.
func (a *Agent) elect(ctx context.Context, c *nomad.Client, ha HA, lead func(context.Context) error) error {
	ttl, delay, err := ha.times()
	if err != nil {
		return err
	}
	v := api.Variable{
		Namespace: c.Namespace(), Path: cmp.Or(ha.LockPath, "nomad-pal/lock"),
		Lock: &api.VariableLock{TTL: ttl.String(), LockDelay: delay.String()},
	}
	for ctx.Err() == nil {
		locks, err := c.API().Locks(api.WriteOptions{Namespace: c.Namespace()}, v)
		if err != nil {
			return err
		}
		if err := a.term(ctx, locks, ttl, lead); err != nil && ctx.Err() == nil {
			return err
		}
		pause(ctx, ttl/5)
	}
	return ctx.Err()
}

// term tries to get the lock, and if it does, leads until the lock or ctx is
// lost. An error is lead's own.
func (a *Agent) term(ctx context.Context, locks *api.Locks, ttl time.Duration, lead func(context.Context) error) error {
	// Nomad's client uses the argument between its retries only: requests use the context of the options.
	call := func(ctx context.Context, within time.Duration, f func(context.Context) error) error {
		short, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		locks.WriteOptions = *locks.WithContext(short)
		return f(short)
	}
	acquired := time.Now()
	// A lock that is granted later than that has run out. One that is granted to an agent that has
	// given up is nobody's until then, so the agent does not give up before.
	err := call(ctx, ttl, func(ctx context.Context) error {
		_, err := locks.Acquire(ctx)
		return nomad.Denied(err, nomad.WriteVariables)
	})
	if a.noteLock(ctx, err); err != nil {
		return nil
	}
	a.holdLock(acquired.Add(ttl))
	leading, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- lead(leading) }()
	for held := acquired; leading.Err() == nil; pause(leading, ttl/5) {
		now := time.Now()
		switch err := call(ctx, held.Add(2*ttl/3).Sub(now), locks.Renew); { // a third is left to end
		case err == nil:
			held = now
			a.holdLock(now.Add(ttl))
		case errors.Is(err, api.ErrLockConflict) || time.Since(held) > ttl/2:
			a.log.Warn("lost the lock, another may lead", "error", nomad.Denied(err, nomad.WriteVariables))
			if errors.Is(err, api.ErrLockConflict) {
				a.holdLock(time.Time{})
			}
			cancel()
		}
		select {
		case err := <-ended: // by itself
			cancel()
			ended <- err
		default:
		}
	}
	cancel()
	err = <-ended
	if releaseErr := call(context.WithoutCancel(ctx), 2*time.Second, locks.Release); releaseErr != nil {
		a.log.Debug("the lock was not released", "error", releaseErr)
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// holdLock notes until when the lock belongs to this agent even without renewal.
func (a *Agent) holdLock(until time.Time) { a.lockUntil.Store(&until) }

// holdsLock reports whether it is this agent's still: it may have hung since it last looked.
func (a *Agent) holdsLock(now time.Time) bool {
	until := a.lockUntil.Load()
	return until != nil && now.Before(*until)
}

// noteLock notes the result of acquiring the lock. If another agent has it, all is well. Otherwise
// there may be no active agent, and an operator has to know why.
func (a *Agent) noteLock(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	text := ""
	if err != nil && !errors.Is(err, api.ErrLockConflict) {
		text = err.Error()
	}
	switch was := a.lockError.Swap(&text); {
	case text != "" && (was == nil || *was != text):
		a.log.Warn("cannot ask for the lock, trying again; until then this agent cannot take over", "error", err)
	case text == "" && was != nil && *was != "":
		a.log.Info("asking for the lock works again")
	}
}

// pause waits unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// times are how long a lock lasts that nobody renews, and how long nobody gets
// it after that.
func (ha *HA) times() (ttl, delay time.Duration, err error) {
	ttl, delay = 15*time.Second, 5*time.Second
	if ha == nil {
		return ttl, delay, nil
	}
	if err := duration("high_availability: lock_ttl", ha.LockTTL, &ttl); err != nil {
		return 0, 0, err
	}
	if ttl < leastLockTTL || ttl > mostLockTTL {
		return 0, 0, fmt.Errorf("high_availability: lock_ttl = %q is not in %s…%s, as Nomad wants it", ha.LockTTL, leastLockTTL, mostLockTTL)
	}
	return ttl, delay, duration("high_availability: lock_delay", ha.LockDelay, &delay)
}

// How long Nomad lets a lock last; tests take less.
var leastLockTTL, mostLockTTL = 10 * time.Second, 24 * time.Hour
