// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
)

// world is a state with the nodes of [clustertest.Nodes].
func world(nodes int) *State { return clustertest.Fill(NewState(), nodes) }

var addJob = clustertest.AddJob
