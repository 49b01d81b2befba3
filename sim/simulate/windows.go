// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"math"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/window"
)

// windows returns the windows of the agent's configuration in simulated time; nil if there are
// none. Simulated nodes have only a name, a rack and a datacenter.
func (o *options) windows(c *pal.Cluster) func(time.Duration) ([]queue.Window, time.Duration) {
	if len(o.rules.Windows) == 0 {
		return nil
	}
	gpus := func(w window.Window) []int {
		var out []int
		for u := range c.NumGPUs() {
			node, _ := c.Group(c.GroupOf(u))
			if n := c.Node(node); w.Holds(window.Node{ID: n.ID, Name: n.Name, Rack: n.Rack, Datacenter: n.Datacenter}) {
				out = append(out, u)
			}
		}
		return out
	}
	since := func(t time.Time) time.Duration { return t.Sub(o.begin) }
	return func(now time.Duration) ([]queue.Window, time.Duration) {
		ws, next, _ := window.ToQueue(o.rules.Windows, o.begin.Add(now), since, gpus)
		if next.IsZero() {
			return ws, math.MaxInt64
		}
		return ws, since(next)
	}
}
