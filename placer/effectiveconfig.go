// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// configToPublish tells the commands which configuration is in force. It looks as often as the
// heart beats: another agent that was at work for a moment leaves its own.
func (p *Placer) configToPublish(now time.Time) *entry {
	again := !p.configAt.IsZero() && now.Sub(p.configAt) >= heartbeat.HeartbeatEvery
	if !p.configDue && !again || p.backsOff(publishingConfig, now) {
		return nil
	}
	p.configDue, p.configAt = false, now
	r := store.EffectiveConfig{
		Keys: map[string]string{}, Locality: p.m.Cfg.Locality, Apps: p.m.Cfg.Apps, Tenants: p.m.Cfg.Queue.Tenants, Windows: p.m.Cfg.Windows,
		Children: p.m.Cfg.Children, Learn: p.m.Cfg.Learned != nil,
	}
	for _, k := range model.Keys() {
		r.Keys[k.Path()] = k.Get(p.m.Cfg)
	}
	return &entry{
		what:  publishingConfig,
		write: func(ctx context.Context) error { return store.In(p.nomad).EffectiveConfig().Keep(ctx, r) },
		then:  func(err error) { p.configDue = p.configDue || err != nil },
	}
}

// ReadEffectiveConfig reads the configuration of the agent in charge; the defaults if
// there was no agent yet.
func ReadEffectiveConfig(ctx context.Context, c *nomad.Client) (model.Config, error) {
	cfg := model.DefaultConfig()
	v := store.In(c).EffectiveConfig()
	is, err := v.Read(ctx)
	if !is.There {
		return cfg, err
	}
	r := is.Of
	for _, k := range model.Keys() {
		value, said := r.Keys[k.Path()]
		if !said {
			continue // by an agent of another version
		}
		if err := k.Set(&cfg, value); err != nil {
			return cfg, fmt.Errorf("reading variable %q: %s: %w", v.Path, k.Path(), err)
		}
	}
	cfg.Locality, cfg.Apps, cfg.Queue.Tenants, cfg.Children, cfg.Windows = r.Locality, r.Apps, r.Tenants, r.Children, r.Windows
	if r.Learn {
		cfg.Learned = readLearned(ctx, c).Class
	}
	return cfg, nil
}
