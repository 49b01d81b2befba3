// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
)

// world is a state of nodes as of [clustertest.Nodes].
func world(nodes int) *cluster.State {
	s := cluster.NewState()
	for _, n := range clustertest.Nodes(nodes) {
		s.PutNode(n)
	}
	return s
}

// addJob puts a job into the state: see [clustertest.Job].
func addJob(t *testing.T, s *cluster.State, hcl string, index uint64) *api.Job {
	t.Helper()
	job := clustertest.Job(t, hcl, index)
	s.PutJob(job)
	return job
}
