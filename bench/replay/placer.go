// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// Rules are a run's changes to the placer's default configuration.
type Rules struct {
	Penalty   float64        // locality penalty across nodes
	Placement pal.PolicyName // "": the default
	Order     queue.Order    // if set, the queue's only feature; "": the default queue
	// MaxWait and OverdueShare are keys of the queue; 0: the default.
	MaxWait      time.Duration
	OverdueShare float64
	// Compress is the divisor of the queue's time constants; 0: unchanged.
	Compress float64
	// Restart is the run time that a gang loses when it is stopped and restarted; 0: the default.
	Restart time.Duration
}

// config returns the placer's configuration with these rules.
func (r Rules) config() model.Config {
	c := model.DefaultConfig()
	c.Placement = cmp.Or(r.Placement, c.Placement)
	if r.Order != "" {
		q := queue.Default()
		q.Order, q.Backfill, q.Preempt, q.Migrate, q.LocalityWait, q.OutlierThreshold = r.Order, queue.BackfillNone, false, false, false, 0
		c.Queue = q
	}
	c.Queue.MaxWait, c.Queue.OverdueShare = cmp.Or(r.MaxWait, c.Queue.MaxWait), cmp.Or(r.OverdueShare, c.Queue.OverdueShare)
	if r.Compress > 0 {
		c.Queue.MaxWait = compress(c.Queue.MaxWait, queue.DefaultMaxWait, r.Compress)
		c.Queue.Quantum = compress(c.Queue.Quantum, queue.DefaultQuantum, r.Compress)
		c.Queue.DefaultRuntime = compress(c.Queue.DefaultRuntime, queue.DefaultRuntime, r.Compress)
	}
	return c
}

func compress(d, fallback time.Duration, by float64) time.Duration {
	return time.Duration(float64(cmp.Or(d, fallback)) / by)
}

// Queue returns the queue's options with these rules, for the simulator.
func (r Rules) Queue() queue.Options {
	c := r.config()
	o := c.Queue
	o.Placement = queue.Placement(c.Placement)
	return o
}

// HCL returns the agent's configuration with these rules.
func (r Rules) HCL() string {
	var b strings.Builder
	c := r.config()
	fmt.Fprintf(&b, "placement = %q\nlocality {\n  cluster = %v\n}\nhttp {\n  bind_port = 0\n}\n", c.Placement, r.Penalty)
	c.RestartCost = cmp.Or(r.Restart, c.RestartCost)
	b.WriteString("queue {\n")
	for _, k := range model.Keys() {
		if k.Block == "queue" {
			fmt.Fprintf(&b, "  %s = %s\n", k.Name, k.Literal(c))
		}
	}
	b.WriteString("}\n")
	return b.String()
}
