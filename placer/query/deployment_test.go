// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"testing"

	"github.com/hashicorp/nomad/api"
)

// A deployment reports members that became unhealthy, such as a failed canary. A member that a drain
// replaced does not count beside its replacement.
func TestProgressOfADeployment(t *testing.T) {
	for want, g := range map[string]api.DeploymentState{
		"Nomad is deploying version 4: 0 of 1 member is healthy, 1 became unhealthy": {DesiredTotal: 3, DesiredCanaries: 1, PlacedAllocs: 1, UnhealthyAllocs: 1},
		"version 4 waits to be promoted: 1 of 1 canary is healthy":                   {DesiredTotal: 3, DesiredCanaries: 1, PlacedAllocs: 2, HealthyAllocs: 2},
		"Nomad is deploying version 4: 3 of 3 members are healthy":                   {DesiredTotal: 3, PlacedAllocs: 4, HealthyAllocs: 4},
	} {
		job := api.NewServiceJob("api", "api", "global", 50)
		job.Version = new(uint64(4))
		_, got := describe(&api.Deployment{JobVersion: 4, Status: api.DeploymentStatusRunning, TaskGroups: map[string]*api.DeploymentState{"serve": &g}}, job)
		if got.String() != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
