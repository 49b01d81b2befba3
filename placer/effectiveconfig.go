// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// configToPublish tells the commands which configuration is in force.
func (p *Placer) configToPublish(now time.Time) *entry {
	if !p.configDue || !p.mayTry(publishingConfig, now) {
		return nil
	}
	p.configDue = false
	r := store.EffectiveConfig{
		Keys: map[string]string{}, Locality: p.cfg.Locality, Apps: p.cfg.Apps, Tenants: p.cfg.Queue.Tenants, Windows: p.cfg.Windows,
		Children: p.cfg.Children, Learn: p.cfg.Learner != nil,
	}
	for _, k := range Keys() {
		r.Keys[k.Path()] = k.Get(p.cfg)
	}
	return &entry{
		what:  publishingConfig,
		write: func(ctx context.Context) error { return store.In(p.nomad).EffectiveConfig().Write(ctx, r) },
		then:  func(err error) { p.configDue = p.configDue || err != nil },
	}
}

// ReadEffectiveConfig reads the configuration of the agent in charge; the defaults if
// there was no agent yet.
func ReadEffectiveConfig(ctx context.Context, c *nomad.Client) (Config, error) {
	cfg := DefaultConfig()
	v := store.In(c).EffectiveConfig()
	is, err := v.Read(ctx)
	if !is.There {
		return cfg, err
	}
	r := is.Of
	for _, k := range Keys() {
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
		cfg.Learner = Recall(ctx, c)
	}
	return cfg, nil
}
