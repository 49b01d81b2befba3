// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"fmt"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// publishRules tells the commands which rules are in force.
func (p *Placer) publishRules(ctx context.Context) error {
	r := store.EffectiveConfig{
		Keys: map[string]string{}, Locality: p.cfg.Locality, Apps: p.cfg.Apps, Tenants: p.cfg.Queue.Tenants,
		Children: p.cfg.Children, Learn: p.cfg.Learner != nil,
	}
	for _, k := range Keys() {
		r.Keys[k.Path()] = k.Get(p.cfg)
	}
	return store.In(p.nomad).EffectiveConfig().Write(ctx, r)
}

// ReadRules reads the rules of the agent in charge, the defaults where there
// was none yet.
func ReadRules(ctx context.Context, c *nomad.Client) (Config, error) {
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
	cfg.Locality, cfg.Apps, cfg.Queue.Tenants, cfg.Children = r.Locality, r.Apps, r.Tenants, r.Children
	if r.Learn {
		cfg.Learner = Recall(ctx, c)
	}
	return cfg, nil
}
