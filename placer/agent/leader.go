// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// elect runs lead whenever this agent holds the lock, until ctx ends. A lock
// that is lost ends lead; check-and-set commits make the moment in which two
// agents believe to lead harmless.
func (a *Agent) elect(ctx context.Context, c *nomad.Client, ha HA, lead func(context.Context) error) error {
	ttl, delay, err := ha.times()
	if err != nil {
		return err
	}
	path := ha.LockPath
	if path == "" {
		path = "nomad-pal/lock"
	}
	v := api.Variable{
		Namespace: c.Namespace(), Path: path,
		Lock: &api.VariableLock{TTL: ttl.String(), LockDelay: delay.String()},
	}
	for ctx.Err() == nil {
		locks, err := c.API().Locks(api.WriteOptions{Namespace: c.Namespace()}, v)
		if err != nil {
			return err
		}
		err = c.API().NewLockLeaser(locks).Start(ctx, lead)
		if ctx.Err() == nil && err != nil && !errors.Is(err, context.Canceled) {
			a.log.Warn("leadership ended", "error", err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}
	return ctx.Err()
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
	return ttl, delay, duration("high_availability: lock_delay", ha.LockDelay, &delay)
}
