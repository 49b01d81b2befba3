// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"errors"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

const (
	// snapshotAge is how old a snapshot may be that is shown: making one reads the
	// lists of all nodes, jobs and allocations.
	snapshotAge = 2 * time.Second
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
	panicked func(what string, v any, stack []byte)
	flight   singleflight.Group
	last     atomic.Pointer[snapshot]
	making   chan struct{} // holds one for each that is being made
}

type snapshot struct {
	*placer.Snapshot
	made time.Time
}

func newSnapshots(connect func() (*nomad.Client, error), panicked func(string, any, []byte)) *snapshots {
	return &snapshots{connect: connect, panicked: panicked, making: make(chan struct{}, snapshotsAtOnce)}
}

// get is the cluster as the agent sees it, at most snapshotAge old.
func (s *snapshots) get(ctx context.Context) (*placer.Snapshot, error) {
	if last := s.last.Load(); last != nil && time.Since(last.made) < snapshotAge {
		return last.Snapshot, nil
	}
	made := s.flight.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), snapshotTimeout)
		defer cancel()
		fresh, err := s.anew(ctx)
		if err != nil {
			return nil, err
		}
		s.last.Store(&snapshot{fresh, time.Now()})
		return fresh, nil
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-made:
		fresh, _ := r.Val.(*placer.Snapshot)
		return fresh, r.Err
	}
}

// errPanicked is a snapshot that could not be made by our own fault.
var errPanicked = errors.New("the agent failed to look at the cluster: its log says why")

// anew reads what has changed since the last snapshot. A panic in it is the end of
// this try only: in a flight that others wait for it would end the process.
func (s *snapshots) anew(ctx context.Context) (_ *placer.Snapshot, err error) {
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
	if last := s.last.Load(); last != nil {
		return last.Refresh(ctx, client)
	}
	return placer.ReadSnapshot(ctx, client)
}

// forget has the next snapshot read everything: the last one cannot be trusted.
func (s *snapshots) forget() { s.last.Store(nil) }

// activities reads the heartbeat of the agent at work.
type activities struct {
	connect func() (*nomad.Client, error)
	flight  singleflight.Group
	last    atomic.Pointer[activity]
}

type activity struct {
	placer.Activity
	read time.Time
}

// activityTimeout bounds the reading of one variable.
const activityTimeout = 10 * time.Second

// get is what it says, at most snapshotAge old.
func (s *activities) get(ctx context.Context) (placer.Activity, error) {
	if last := s.last.Load(); last != nil && time.Since(last.read) < snapshotAge {
		return last.Activity, nil
	}
	read := s.flight.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), activityTimeout)
		defer cancel()
		client, err := s.connect()
		if err != nil {
			return placer.Activity{}, err
		}
		defer client.API().Close()
		a, err := placer.ReadActivity(ctx, client, time.Now())
		if err == nil {
			s.last.Store(&activity{a, time.Now()})
		}
		return a, err
	})
	select {
	case <-ctx.Done():
		return placer.Activity{}, ctx.Err()
	case r := <-read:
		a, _ := r.Val.(placer.Activity)
		return a, r.Err
	}
}
