// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"time"

	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// plainly reads GPUs from Nomad itself, with the user's token. plainly reads nodes, jobs,
// allocations, and the stored profile and quarantine. Only the agent knows the queue, racks and
// windows. last is the previous result, or nil.
func plainly(b *base, client *nomad.Client, last *query.Snapshot) (*query.Snapshot, error) {
	cfg, now := model.DefaultConfig(), time.Now()
	cfg.RackMeta = ""
	m, err := model.New(cfg, now)
	if err != nil {
		return nil, err
	}
	var old *cluster.State
	if last != nil {
		old = last.Model().State
	}
	if m.State, err = client.Resync(b.ctx, old); err != nil {
		return nil, err
	}
	damaged := func(err error) error {
		if last != nil && store.Unreadable(err) { // damaged has printed a note for the first result
			return nil
		}
		return b.damaged(err)
	}
	if m.Profile, err = store.In(client).Profile().Read(b.ctx); damaged(err) != nil {
		return nil, err
	}
	if m.Quarantine, err = placer.ReadQuarantine(b.ctx, client); damaged(err) != nil {
		return nil, err
	}
	activity, err := heartbeat.ReadActivity(b.ctx, client, now)
	if err != nil {
		return nil, err
	}
	if err := m.UpdateView(now); err != nil {
		return nil, err
	}
	return query.New(m, client, activity), nil
}

// plainNote describes what is unknown about GPUs that were read from Nomad itself.
func plainNote(b *base, client *nomad.Client, why error) string {
	text := "Note: this output comes from Nomad, not from an agent, because " + why.Error() + ". Racks and windows are not known"
	if b.seesPart(client) {
		text += "; a GPU looks free if your token cannot see the job on it"
	}
	return text
}
