// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/placer"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// snapshotAge is how long the agent reuses the heartbeat that it has read, and how often pages that
// follow the cluster get changes.
const snapshotAge = 2 * time.Second

// snapshots holds the snapshots of the active placer in this agent.
type snapshots struct {
	atWork func() *placer.Placer // returns the active placer, or nil

	mu      sync.Mutex
	since   time.Time       // each snapshot must include everything that happened before
	seen    *query.Snapshot // the latest snapshot of a placer in trouble
	seenAs  *query.Snapshot // seen, marked as old because of the trouble
	trouble string
}

// errNotAtWork is the error of an agent that has no active placer.
var errNotAtWork = errors.New("this agent is not active: it has just started, or waits for another agent to end")

// picture returns a snapshot of the active placer that includes all changes made before the given
// time. While the placer is in trouble, picture returns the latest snapshot, marked as old.
func (s *snapshots) picture(ctx context.Context, p *placer.Placer, since time.Time) (*query.Snapshot, error) {
	trouble := p.Vitals().Trouble(time.Now())
	if trouble == "" {
		return p.PictureSince(ctx, since)
	}
	picture := p.Picture()
	if picture == nil {
		return nil, errors.New("the agent has not read the cluster yet: " + trouble)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen != picture || s.trouble != trouble {
		s.seen, s.trouble = picture, trouble
		s.seenAs = picture.With(palapi.Activity{Trouble: trouble, Since: picture.Model().Time})
	}
	return s.seenAs, nil
}

// placer returns the active placer. placer waits up to beginsWithin for one, because an agent that
// has just started or reloaded its configuration will soon have one.
func (s *snapshots) placer(ctx context.Context) (*placer.Placer, error) {
	ctx, cancel := context.WithTimeout(ctx, beginsWithin)
	defer cancel()
	for {
		p := s.atWork()
		if p != nil {
			return p, nil
		}
		if ctx.Err() != nil {
			return nil, errNotAtWork
		}
		pause(ctx, beginsWithin/100)
	}
}

// beginsWithin is how long a reader waits for a placer.
const beginsWithin = 5 * time.Second

// upToNow returns a snapshot that includes all Nomad events up to the request. If the placer takes
// longer than [upToNowWithin], upToNow returns an older snapshot.
func (s *snapshots) upToNow(ctx context.Context) (*query.Snapshot, error) {
	p, err := s.placer(ctx)
	if err != nil {
		return nil, err
	}
	brief, cancel := context.WithTimeout(ctx, upToNowWithin)
	defer cancel()
	if picture, err := s.picture(brief, p, time.Now()); err == nil || brief.Err() == nil {
		return picture, err
	}
	return s.picture(ctx, p, time.Time{})
}

// upToNowWithin is how long upToNow waits for the current snapshot before it returns an older one.
const upToNowWithin = 2 * time.Second

// latest returns the latest snapshot, however old; nil if there is none.
func (s *snapshots) latest() *query.Snapshot {
	p := s.atWork()
	if p != nil {
		return p.Picture()
	}
	return nil
}

// get returns a snapshot that is at most about a second old. The snapshot includes all changes that
// were made through this agent.
func (s *snapshots) get(ctx context.Context) (*query.Snapshot, error) {
	p, err := s.placer(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	since := s.since
	s.mu.Unlock()
	return s.picture(ctx, p, since)
}

// changed makes all later snapshots include the changes up to now. Whoever makes a change through
// this agent sees the change in the next answer.
func (s *snapshots) changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Now()
}

// forget forces a new snapshot, because the last one cannot be trusted.
func (s *snapshots) forget() {
	p := s.atWork()
	if p != nil {
		p.ForgetPicture()
	}
}

// activities reads the heartbeat of the active agent.
type activities struct {
	connect func() (*nomad.Client, error)
	mu      sync.Mutex
	last    palapi.Activity
	err     error
	read    time.Time
}

// activityTimeout is the time limit for reading the heartbeat.
const activityTimeout = 10 * time.Second

// get returns the heartbeat, or why it could not be read, at most snapshotAge old. Callers that
// arrive during a read wait for it.
func (s *activities) get(ctx context.Context) (palapi.Activity, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.read) < snapshotAge {
		return s.last, s.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), activityTimeout)
	defer cancel()
	client, err := s.connect()
	if err == nil {
		s.last, err = heartbeat.ReadActivity(ctx, client, time.Now())
	}
	s.err, s.read = err, time.Now()
	return s.last, s.err
}
