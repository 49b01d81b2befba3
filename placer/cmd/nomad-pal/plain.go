// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"time"

	"github.com/nomad-pal/nomad-pal/placer"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// plainly reads the cluster from Nomad itself, with the user's token, for doctor: nodes, jobs,
// allocations, and the stored profile and quarantine. Only the agent knows the queue, racks and
// windows.
func plainly(b *base, client *nomad.Client) (*query.Snapshot, error) {
	cfg, now := model.DefaultConfig(), time.Now()
	cfg.RackMeta = ""
	m, err := model.New(cfg, now)
	if err != nil {
		return nil, err
	}
	if m.State, err = client.Resync(b.ctx, nil); err != nil {
		return nil, err
	}
	if m.Profile, err = store.In(client).Profile().Read(b.ctx); b.damaged(err) != nil {
		return nil, err
	}
	if m.Quarantine, err = placer.ReadQuarantine(b.ctx, client); b.damaged(err) != nil {
		return nil, err
	}
	if err := m.UpdateView(now); err != nil {
		return nil, err
	}
	return query.New(m, client, palapi.Activity{}), nil
}
