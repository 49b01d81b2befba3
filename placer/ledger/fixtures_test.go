// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package ledger

import (
	"fmt"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
)

// put applies nodes as events do; later nodes have higher indexes.
func put(s *cluster.State, nodes ...*api.Node) {
	for _, n := range nodes {
		copied := *n
		if old := s.Nodes[n.ID]; old != nil {
			copied.ModifyIndex = old.ModifyIndex + 1
		}
		s.PutNode(&copied)
	}
}

// read returns the state after a full read of these nodes and allocations; old is the state before
// it.
func read(old *cluster.State, allocs []*cluster.Alloc, nodes ...*api.Node) *cluster.State {
	s, stubs := old.Next(), make([]*cluster.NodeStub, len(nodes))
	s.TakeNodes(old, 0, stubs, nodes, make([]error, len(nodes)))
	s.TakeAllocs(0, allocs)
	s.Follow(old)
	return s
}

// world is a state with nodes from [clustertest.Nodes].
func world(nodes int) *cluster.State { return clustertest.Fill(cluster.NewState(), nodes) }

var addJob = clustertest.AddJob

func alloc(id string, job cluster.JobKey, node int, client string, index uint64, gpus ...string) *cluster.Alloc {
	return &cluster.Alloc{
		ID: id, Job: job, Group: "g", Node: fmt.Sprintf("id-%d", node), Desired: "run", Client: client, GPUs: gpus,
		Used: pal.Resources{CPU: 100, MemoryMB: 100, DiskMB: 110}, CreateIndex: index, ModifyIndex: index,
	}
}
