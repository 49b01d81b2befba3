// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"net/http"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// Nomad by default allows one address 100 connections (limits { http_max_conns_per_client }). The
// agent stays well below this limit, because commands on its machine have the same address. Callers
// and placer have connections of their own, so that callers never delay the placer's writes.
const (
	callerConns = 24 // to check callers' rights, and to read with their tokens
	placerConns = 40 // 16 parallel reads, 16 parallel polls of nodes, events, and writes
	lockConns   = 2  // a late renewal would lose the lock
)

// connections are the agent's HTTP connections to Nomad under one configuration.
type connections struct {
	placer, callers, lock *http.Client
}

func newConnections(cfg *api.Config) (*connections, error) {
	c := &connections{}
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
