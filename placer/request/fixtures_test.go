// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
)

// world is a state with nodes of [clustertest.Nodes].
func world(nodes int) *cluster.State { return clustertest.Fill(cluster.NewState(), nodes) }

var addJob = clustertest.AddJob
