// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"testing"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// What several groups lack alike is said once.
func TestObstaclesOfSeveralGroups(t *testing.T) {
	t.Parallel()
	lacks := func(group string) nomad.Obstacle {
		return nomad.Obstacle{Group: group, What: "missing drivers: docker", Nodes: 4, Total: 4}
	}
	got := withObstacles("needs 20 GPUs, the cluster has 0 that match", false, []nomad.Obstacle{lacks("a"), lacks("b")})
	if want := "needs 20 GPUs, the cluster has 0 that match: missing drivers: docker (4 of 4 nodes)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
