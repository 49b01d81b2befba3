// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/semaphore"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// Nomad by default allows one address 100 connections (limits { http_max_conns_per_client }). The
// agent stays well below this limit, because commands on its machine have the same address. Callers
// and placer have connections of their own, so that callers never delay the placer's writes.
const (
	callerConns = 24 // to check callers' rights, and to read with their tokens
	placerConns = 40 // 16 parallel reads, 16 parallel polls of nodes, events, and writes
	lockConns   = 2  // a late renewal would lose the lock
	// callerWait is how long a request waits for one of the callers' connections.
	callerWait = 5 * time.Second
)

// errCrowded means that too many requests wait for Nomad.
var errCrowded = errors.New("too many requests ask Nomad through this agent at once: try again")

// connections are the agent's HTTP connections to Nomad under one configuration.
type connections struct {
	placer, callers, lock *http.Client
	callerRoom            *semaphore.Weighted
}

func newConnections(cfg *api.Config) (*connections, error) {
	c := &connections{callerRoom: semaphore.NewWeighted(callerConns)}
	for client, most := range map[**http.Client]int{&c.placer: placerConns, &c.callers: callerConns, &c.lock: lockConns} {
		var err error
		if *client, err = nomad.HTTPClient(cfg, most); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// close closes the connections that no request uses.
func (c *connections) close() {
	for _, client := range []*http.Client{c.placer, c.callers, c.lock} {
		client.CloseIdleConnections()
	}
}

// queued is a transport whose requests wait for a connection for at most [callerWait].
type queued struct {
	next http.RoundTripper
	room *semaphore.Weighted
}

// RoundTrip implements [http.RoundTripper].
func (q queued) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), callerWait)
	defer cancel()
	if q.room.Acquire(ctx, 1) != nil {
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		return nil, errCrowded
	}
	resp, err := q.next.RoundTrip(r)
	if err != nil {
		q.room.Release(1)
		return nil, err
	}
	resp.Body = &leaving{resp.Body, sync.OnceFunc(func() { q.room.Release(1) })}
	return resp, nil
}

// leaving is the body of an answer that releases its connection's place when it is closed.
type leaving struct {
	io.ReadCloser
	leave func()
}

func (l *leaving) Close() error {
	defer l.leave()
	return l.ReadCloser.Close()
}
