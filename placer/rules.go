// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/window"
)

const rulesPath = "nomad-pal/rules"

// rules is Config without what only the agent needs, as it is published for
// the commands: they must decide as the agent does.
type rules struct {
	// Keys are the values of [Keys] by path.
	Keys     map[string]string       `json:"keys"`
	Locality pal.Locality            `json:"locality"`
	Apps     map[string]pal.AppClass `json:"apps"`
	Tenants  map[string]queue.Tenant `json:"tenants"`
	Windows  []window.Window         `json:"windows,omitempty"`
	Children bool                    `json:"children"`
	Learn    bool                    `json:"learn"`
}

// publishRules tells the commands which rules are in force.
func (p *Placer) publishRules(ctx context.Context) error {
	r := rules{
		Keys: map[string]string{}, Locality: p.cfg.Locality, Apps: p.cfg.Apps, Tenants: p.cfg.Queue.Tenants, Windows: p.cfg.Windows,
		Children: p.cfg.Children, Learn: p.cfg.Learner != nil,
	}
	for _, k := range Keys() {
		r.Keys[k.Path()] = k.Get(p.cfg)
	}
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding the rules: %w", err)
	}
	return p.nomad.WriteVariable(ctx, rulesPath, map[string]string{"rules": string(b)})
}

// ReadRules reads the rules of the agent in charge, the defaults where there
// was none yet.
func ReadRules(ctx context.Context, c *nomad.Client) (Config, error) {
	cfg := DefaultConfig()
	items, err := c.ReadVariable(ctx, rulesPath)
	if err != nil || items == nil {
		return cfg, err
	}
	var r rules
	if err := json.Unmarshal([]byte(items["rules"]), &r); err != nil {
		return cfg, fmt.Errorf("reading variable %q: %w", rulesPath, err)
	}
	for _, k := range Keys() {
		value, said := r.Keys[k.Path()]
		if !said {
			continue // by an agent of another version
		}
		if err := k.Set(&cfg, value); err != nil {
			return cfg, fmt.Errorf("reading variable %q: %s: %w", rulesPath, k.Path(), err)
		}
	}
	cfg.Locality, cfg.Apps, cfg.Queue.Tenants, cfg.Children, cfg.Windows = r.Locality, r.Apps, r.Tenants, r.Children, r.Windows
	if r.Learn {
		cfg.Learner = Recall(ctx, c)
	}
	return cfg, nil
}
