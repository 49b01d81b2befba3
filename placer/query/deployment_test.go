// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"testing"

	"github.com/hashicorp/nomad/api"
)

// A deployment of an earlier version is superseded: Nomad has not looked at the present one.
func TestSupersededDeployment(t *testing.T) {
	for version, want := range map[uint64]bool{2: false, 3: true} {
		job := api.NewServiceJob("api", "api", "global", 50)
		job.Version = &version
		if d := deploymentOf(&api.Deployment{JobVersion: 2, Status: api.DeploymentStatusRunning}, job); d.Superseded != want {
			t.Errorf("version 2 of %d: %+v", version, d)
		}
	}
}
