// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

const rulesPath = "nomad-pal/rules"

// rules is Config without what only the agent needs, as it is published for
// the commands: they must decide as the agent does.
type rules struct {
	Placement    pal.PolicyName          `json:"placement"`
	Order        queue.Order             `json:"order"`
	Queue        queueRules              `json:"queue"`
	Locality     pal.Locality            `json:"locality"`
	Apps         map[string]pal.AppClass `json:"apps"`
	DefaultClass pal.AppClass            `json:"default_class"`
	RackMeta     string                  `json:"rack_meta"`
	Children     bool                    `json:"children"`
	Learn        bool                    `json:"learn"`
}

type queueRules struct {
	Backfill, Passing, Preempt, Migrate, FairShare, Near bool
	Avoid, Share                                         float64
	Pass, Quantum, FirstGuess, RestartCost               time.Duration
	Tenants                                              map[string]queue.Tenant
}

// publishRules tells the commands which rules are in force.
func (p *Placer) publishRules(ctx context.Context) error {
	q := p.cfg.Queue
	b, err := json.Marshal(rules{
		Placement: p.cfg.Placement, Order: q.Order, Locality: p.cfg.Locality, Apps: p.cfg.Apps,
		DefaultClass: p.cfg.DefaultClass, RackMeta: p.cfg.RackMeta, Children: p.cfg.Children,
		Learn: p.cfg.Learner != nil,
		Queue: queueRules{
			q.Backfill, q.Passing, q.Preempt, q.Migrate, q.FairShare, q.Near, q.Avoid, q.Share, q.Pass, q.Quantum, q.FirstGuess, p.cfg.RestartCost, q.Tenants,
		},
	})
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
	cfg.Placement, cfg.Locality, cfg.Apps = r.Placement, r.Locality, r.Apps
	cfg.DefaultClass, cfg.RackMeta, cfg.Children = r.DefaultClass, r.RackMeta, r.Children
	q := r.Queue
	cfg.Queue = queue.Options{
		Order: r.Order, Backfill: q.Backfill, Passing: q.Passing, Preempt: q.Preempt, Migrate: q.Migrate,
		FairShare: q.FairShare, Near: q.Near, Avoid: q.Avoid, Share: q.Share, Pass: q.Pass, Quantum: q.Quantum, FirstGuess: q.FirstGuess, Tenants: q.Tenants,
	}
	cfg.RestartCost = q.RestartCost
	if r.Learn {
		cfg.Learner = Recall(ctx, c)
	}
	return cfg, nil
}
