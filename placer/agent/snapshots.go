// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

const (
	// snapshotAge is how old a snapshot may be that is shown: making one reads the
	// lists of all nodes, jobs and allocations.
	snapshotAge = 2 * time.Second
	// sameFor is how long one may be shown while nothing changes in Nomad but its
	// variables: expected starts move with the clock.
	sameFor = 10 * time.Second
	// snapshotTimeout bounds the making of one; those who wait for it may leave
	// earlier.
	snapshotTimeout = time.Minute
	// snapshotsAtOnce are made at a time at most: the one that all see, and one for a
	// plan.
	snapshotsAtOnce = 2
)

// snapshots makes snapshots of the cluster with the agent's own token. Many who ask
// at once wait for one that is made for all of them, and whoever leaves takes
// nothing from the others.
type snapshots struct {
	connect  func() (*nomad.Client, error)
	atWork   func() *placer.Placer // where the first one begins, and what says why jobs could not start; or nil
	panicked func(what string, v any, stack []byte)
	flight   singleflight.Group
	last     atomic.Pointer[snapshot]
	making   chan struct{} // holds one for each that is being made

	mu      sync.Mutex
	since   time.Time       // who asks sees what has happened until then
	seen    *query.Snapshot // the last picture of a placer at work
	seenAs  *query.Snapshot // how it is shown while that is in trouble
	trouble string
}

type snapshot struct {
	*query.Snapshot
	made time.Time // when it was found to be up to date
	from time.Time // when it was read
	took time.Duration
}

// fresh says whether it may be shown. A large cluster takes longer to read, and is read
// less often, so that a quarter of the time is spent on it at most.
func (s *snapshot) fresh() bool {
	return s != nil && time.Since(s.made) < max(snapshotAge, 3*s.took)
}

func newSnapshots(connect func() (*nomad.Client, error), atWork func() *placer.Placer, panicked func(string, any, []byte)) *snapshots {
	return &snapshots{connect: connect, atWork: atWork, panicked: panicked, making: make(chan struct{}, snapshotsAtOnce)}
}

// picture is how the placer at work sees things. While that is in trouble it is what it saw last,
// and says so; right after a reload, what the one before saw.
func (s *snapshots) picture(ctx context.Context, p *placer.Placer) (*query.Snapshot, error) {
	now := time.Now()
	s.mu.Lock()
	since, before := s.since, s.seen
	s.mu.Unlock()
	trouble := p.Vitals().Trouble(now)
	picture := p.Picture()
	switch {
	case trouble != "" && picture == nil:
		return nil, errors.New("the agent has not seen the cluster yet: " + trouble)
	case trouble != "":
	case picture == nil && before != nil && since.IsZero() && now.Sub(before.Model().Time) < takesOver:
		picture = before
	default:
		var err error
		if picture, err = p.PictureSince(ctx, since); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if trouble == "" {
		s.seen, s.seenAs = picture, nil
		return picture, nil
	}
	if s.seen != picture || s.trouble != trouble || s.seenAs == nil {
		s.seen, s.trouble, s.seenAs = picture, trouble, picture.With(heartbeat.Activity{Trouble: trouble, Since: picture.Model().Time})
	}
	return s.seenAs, nil
}

// takesOver is how long the picture of the placer before is shown while the next one has none.
const takesOver = time.Minute

// catchUp is a picture in which what somebody asks for is likely to be: it is newer than the last.
func (s *snapshots) catchUp(ctx context.Context) (*query.Snapshot, error) {
	if s.atWork() == nil {
		return s.refresh(ctx)
	}
	s.changed()
	return s.get(ctx)
}

// latest is the last one, however old; nil if there is none.
func (s *snapshots) latest() *query.Snapshot {
	if p := s.atWork(); p != nil {
		return p.Picture()
	}
	if last := s.last.Load(); last != nil {
		return last.Snapshot
	}
	return nil
}

// get is the cluster as the agent sees it, at most snapshotAge old; older where reading
// takes long.
func (s *snapshots) get(ctx context.Context) (*query.Snapshot, error) {
	if p := s.atWork(); p != nil {
		return s.picture(ctx, p)
	}
	last := s.last.Load()
	if last.fresh() {
		return last.Snapshot, nil
	}
	return shared(ctx, &s.flight, snapshotTimeout, func(ctx context.Context) (*query.Snapshot, error) {
		if last != nil && time.Since(last.from) < sameFor && s.unchanged(ctx, last) {
			s.last.Store(&snapshot{last.Snapshot, time.Now(), last.from, 0})
			return last.Snapshot, nil
		}
		began := time.Now()
		fresh, err := s.refresh(ctx)
		if err != nil {
			return nil, err
		}
		s.last.Store(&snapshot{fresh, time.Now(), began, time.Since(began)})
		return fresh, nil
	})
}

// shared is what do makes for all who ask meanwhile, within so long. Whoever leaves takes
// nothing from the others.
func shared[T any](
	ctx context.Context, flight *singleflight.Group, within time.Duration, do func(context.Context) (T, error),
) (made T, err error) {
	done := flight.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
		defer cancel()
		return do(ctx)
	})
	select {
	case <-ctx.Done():
		return made, ctx.Err()
	case r := <-done:
		made, _ = r.Val.(T)
		return made, r.Err
	}
}

// ahead makes a snapshot that nobody has asked for yet. Whoever does sees it at once on the
// page, and else what has changed since: he may have changed it himself.
func (s *snapshots) ahead(ctx context.Context) {
	if _, err := s.get(ctx); err == nil && s.atWork() == nil { // else a reader will hear of it
		s.changed()
	}
}

// changed has whoever asks next see what has changed since the last snapshot: he may have
// changed it himself.
func (s *snapshots) changed() {
	s.mu.Lock()
	s.since = time.Now()
	s.mu.Unlock()
	if last := s.last.Load(); last != nil {
		old := *last
		old.made = time.Time{}
		s.last.CompareAndSwap(last, &old)
	}
}

// errPanicked is a snapshot that could not be made by our own fault.
var errPanicked = errors.New("the agent failed to look at the cluster: its log says why")

// refresh reads what has changed since the last snapshot. A panic in it is the end of
// this try only: in a flight that others wait for it would end the process.
func (s *snapshots) refresh(ctx context.Context) (_ *query.Snapshot, err error) {
	select {
	case s.making <- struct{}{}:
		defer func() { <-s.making }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() {
		if v := recover(); v != nil {
			s.panicked("a snapshot", v, debug.Stack())
			s.forget()
			err = errPanicked
		}
	}()
	client, err := s.connect()
	if err != nil {
		return nil, err
	}
	defer client.API().Close() // Nomad allows one address 100 connections by default
	return placer.Refresh(ctx, client, s.latest())
}

// unchanged says whether the last snapshot shows what Nomad has.
func (s *snapshots) unchanged(ctx context.Context, last *snapshot) bool {
	client, err := s.connect()
	if err != nil {
		return false
	}
	defer client.API().Close()
	same, err := last.Unchanged(ctx, client)
	return same && err == nil
}

// forget has the next snapshot read everything: the last one cannot be trusted.
func (s *snapshots) forget() {
	s.last.Store(nil)
	if p := s.atWork(); p != nil {
		p.ForgetPicture()
	}
}

// activities reads the heartbeat of the agent at work.
type activities struct {
	connect func() (*nomad.Client, error)
	flight  singleflight.Group
	last    atomic.Pointer[activity]
}

type activity struct {
	heartbeat.Activity
	read time.Time
}

// activityTimeout bounds the reading of one variable.
const activityTimeout = 10 * time.Second

// get is what it says, at most snapshotAge old.
func (s *activities) get(ctx context.Context) (heartbeat.Activity, error) {
	if last := s.last.Load(); last != nil && time.Since(last.read) < snapshotAge {
		return last.Activity, nil
	}
	return shared(ctx, &s.flight, activityTimeout, func(ctx context.Context) (heartbeat.Activity, error) {
		client, err := s.connect()
		if err != nil {
			return heartbeat.Activity{}, err
		}
		defer client.API().Close()
		a, err := heartbeat.ReadActivity(ctx, client, time.Now())
		if err == nil {
			s.last.Store(&activity{a, time.Now()})
		}
		return a, err
	})
}
