// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"context"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/live"
)

// AddLive reads the current load of GPUs from their nodes. AddLive fails for more than
// [live.MostNodes] nodes. If a node does not answer, AddLive stores the error with the node's GPUs;
// say turns the error into text.
func AddLive(ctx context.Context, reader *live.Reader, c *api.Client, gpus []palapi.GPU, say func(error) string) error {
	nodes := make([]string, len(gpus))
	for i, g := range gpus {
		nodes[i] = g.NodeID
	}
	uses, silent, err := reader.Nodes(ctx, c, nodes)
	if err != nil {
		return err
	}
	for i := range gpus {
		g := &gpus[i]
		use, ok := uses[attr.GPUOf(g.ID)]
		why := silent[g.NodeID]
		switch {
		case ok:
			g.Live = &use
		case why != nil:
			g.NotLive = "node " + g.Node + " does not answer: " + say(why)
		default:
			g.NotLive = "the plugin on node " + g.Node + " sends no statistics of this GPU"
		}
	}
	return nil
}

// Held is a GPU, its node, and the job (namespace/id) that holds it.
type Held struct{ ID, NodeID, Job string }

// Held returns all GPUs that jobs hold.
func (s *Snapshot) Held() (all []Held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.m.View.Cluster
	for i := range c.NumGPUs() {
		o := s.m.View.Owner(i)
		if o != (cluster.JobKey{}) {
			node, _ := c.Group(c.GroupOf(i))
			all = append(all, Held{c.GPU(i).ID, c.Node(node).ID, o.String()})
		}
	}
	return all
}
