// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// elect runs lead whenever this agent holds the lock, until ctx ends. Before each attempt to
// acquire the lock, elect calls beside. An error from beside means that this agent must not stand
// by. lead ends before another agent can get the lock, unless the process or its machine hangs: see
// [onlyLeading]. Registrations are check-and-set, so even two leaders at once would do no harm to
// jobs.
//
// The agent does not use LockLeaser of Nomad's API package. LockLeaser continues the protected work
// after the lock was lost, and panics if the work fails after LockLeaser has returned.
func (a *Agent) elect(ctx context.Context, c *nomad.Client, ha HA, beside, lead func(context.Context) error) error {
	ttl, _ := ha.ttl() // checked by [File.PlacerConfig]
	v := api.Variable{
		Namespace: c.Namespace(), Path: "nomad-pal/lock",
		Lock:  &api.VariableLock{TTL: ttl.String(), LockDelay: lockDelay.String()},
		Items: api.VariableItems{"agent": name()}, // for people who wonder who holds the lock
	}
	for ctx.Err() == nil {
		if err := beside(ctx); err != nil {
			return err
		}
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

// term tries to acquire the lock, and if it succeeds, leads until the lock is lost or ctx ends.
// term returns only errors of lead.
func (a *Agent) term(ctx context.Context, locks *api.Locks, ttl time.Duration, lead func(context.Context) error) error {
	// Nomad's client uses the context argument only between retries, and the options' context for
	// requests.
	call := func(ctx context.Context, within time.Duration, f func(context.Context) error) error {
		short, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		locks.WriteOptions = *locks.WithContext(short)
		return f(short)
	}
	acquired := time.Now()
	// If the agent gave up before ttl, Nomad might still grant it the lock, which would block all
	// agents until the lock expires. A lock that Nomad grants after ttl has already expired.
	err := call(ctx, ttl, func(ctx context.Context) error {
		_, err := locks.Acquire(ctx)
		return nomad.Denied(err, nomad.WriteVariables)
	})
	if a.noteLock(ctx, err, time.Since(acquired), ttl); err != nil {
		return nil
	}
	a.holdLock(acquired.Add(ttl))
	leading, cancel := context.WithCancel(ctx)
	ended, lost := make(chan error, 1), false
	go func() { ended <- lead(leading) }()
	for held, now := acquired, acquired; leading.Err() == nil; pause(leading, time.Until(now.Add(ttl/5))) {
		now = time.Now()
		switch err := call(ctx, held.Add(2*ttl/3).Sub(now), locks.Renew); { // this timeout leaves a third of the ttl for lead to end
		case err == nil:
			held = now
			a.holdLock(now.Add(ttl))
		case errors.Is(err, api.ErrLockConflict) || time.Since(held) > ttl/2:
			a.log.Warn("lost the lock; another agent may take over", "error", nomad.Denied(err, nomad.WriteVariables))
			if errors.Is(err, api.ErrLockConflict) {
				a.holdLock(time.Time{})
			}
			lost = true
			cancel()
		}
		select {
		case err := <-ended: // lead ended by itself
			cancel()
			ended <- err
		default:
		}
	}
	cancel()
	err = <-ended
	// When [lockDelay] has passed since a lock expired, Nomad removes the variable's lock, even if
	// it is a newer one. If this agent released an expired lock, Nomad would remove the next
	// agent's lock in this way. That lock would also expire, and its successor would be removed:
	// agents would take turns forever.
	if !lost && a.holdsLock(time.Now()) {
		if err := call(context.WithoutCancel(ctx), 2*time.Second, locks.Release); err != nil {
			a.log.Debug("the lock was not released", "error", err)
		}
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// holdLock records when the lock expires unless this agent renews it.
func (a *Agent) holdLock(until time.Time) { a.lockUntil.Store(&until) }

// holdsLock reports whether this agent still holds the lock. The lock may have expired, for example
// if the process or its machine was suspended after the last renewal. While the machine is
// suspended, the monotonic clock stops, so holdsLock also compares the wall clock (Round(0)). If
// somebody sets the wall clock forward, the agent writes nothing until it has renewed the lock.
func (a *Agent) holdsLock(now time.Time) bool {
	until := a.lockUntil.Load()
	return until != nil && now.Before(*until) && now.Round(0).Before(until.Round(0))
}

// errLostLock is why an agent that has lost its lock writes nothing.
var errLostLock = errors.New("this agent no longer holds the lock, so another agent may be active")

// onlyLeading is a transport that sends writes only while this agent holds the lock. An agent that
// hung for a while does not know yet that another agent has taken over. It would overwrite newer
// data.
type onlyLeading struct {
	next     http.RoundTripper
	mayWrite func() error
}

// mayWrite returns an error unless this agent holds the lock.
func (a *Agent) mayWrite() error {
	if a.holdsLock(time.Now()) {
		return nil
	}
	return errLostLock
}

// RoundTrip implements [http.RoundTripper].
func (o onlyLeading) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		if err := o.mayWrite(); err != nil {
			return nil, err
		}
	}
	return o.next.RoundTrip(r)
}

// connect returns the client of the placer. If the placer is elected, the client writes only while
// this agent holds the lock.
func (a *Agent) connect(file File) (*nomad.Client, error) {
	through := []func(http.RoundTripper) http.RoundTripper{a.meter.Transport}
	mayWrite := func() error { return nil }
	if file.HA.on() {
		mayWrite = a.mayWrite
		through = append(through, func(next http.RoundTripper) http.RoundTripper { return onlyLeading{next, mayWrite} })
	}
	client, err := file.Nomad.Connect(through...)
	if err != nil {
		return nil, err
	}
	return client, file.Nomad.serveChildren(client, mayWrite)
}

// noteLock records the result of an attempt to acquire the lock, and how long the attempt took. It is
// no problem if another agent holds the lock. After any other error, or if Nomad answers too slowly,
// there may be no active agent, so noteLock logs the cause, and health reports it.
func (a *Agent) noteLock(ctx context.Context, err error, took, ttl time.Duration) {
	if ctx.Err() != nil {
		return
	}
	text := ""
	switch {
	case err != nil && !errors.Is(err, api.ErrLockConflict):
		text = err.Error()
	case took > ttl/3: // a renewal that takes as long ends 2 × took after the last renewal began
		text = fmt.Sprintf("Nomad took %s to answer, but an agent with lock_ttl = %s keeps the lock only if Nomad answers within %s: find out why Nomad is slow, or set high_availability { lock_ttl = %q } for all agents",
			took.Round(time.Second), ttl, (ttl / 3).Round(time.Second/10), (4 * took).Round(time.Second))
	}
	was := a.lockError.Swap(&text)
	switch {
	case text != "" && (was == nil || *was != text):
		a.log.Warn("cannot hold the lock; until a retry succeeds, this agent cannot take over", "error", text)
	case text == "" && was != nil && *was != "":
		a.log.Info("this agent can take over again")
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// on reports whether agents elect the active agent.
func (ha *HA) on() bool { return ha.Enabled != nil && *ha.Enabled }

func (ha *HA) check() error {
	if _, err := ha.ttl(); err != nil {
		return err
	}
	if ha.Enabled == nil && *ha != (HA{}) {
		return errors.New("high_availability: without enabled = true, agents elect no leader, and the other keys have no effect")
	}
	return nil
}

// lockDelay is the delay from the expiry of the lock until another agent can acquire it.
const lockDelay = 5 * time.Second

// ttl returns how long the lock of a crashed agent stays valid.
func (ha *HA) ttl() (time.Duration, error) {
	ttl := 15 * time.Second
	if err := duration("high_availability: lock_ttl", ha.LockTTL, &ttl); err != nil {
		return 0, err
	}
	if ttl < leastLockTTL || ttl > mostLockTTL {
		return 0, fmt.Errorf("high_availability: lock_ttl = %q is not between %s and %s, as Nomad requires", ha.LockTTL, leastLockTTL, mostLockTTL)
	}
	return ttl, nil
}

// failover returns the longest time from the death of the active agent until another agent is
// active. Nomad frees the lock at the latest 2 × ttl + lockDelay after the last renewal. A standby then
// waits up to ttl/5 until its next attempt.
func (ha *HA) failover() time.Duration {
	ttl, _ := ha.ttl() // checked by [File.PlacerConfig]
	return (ttl*11/5 + lockDelay).Round(time.Second)
}

// The range that Nomad allows for a lock's TTL. Tests use shorter TTLs.
var leastLockTTL, mostLockTTL = 10 * time.Second, 24 * time.Hour
