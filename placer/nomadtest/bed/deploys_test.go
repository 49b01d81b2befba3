// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"time"

	"github.com/hashicorp/nomad/api"
)

// deployed returns a service whose deployments succeed or fail soon.
func deployed(canary int, revert bool) Gang {
	return Gang{Name: "s", Members: 2, Service: true, Change: func(j *api.Job) {
		j.TaskGroups[0].Update = &api.UpdateStrategy{
			Canary: &canary, MaxParallel: new(1), HealthCheck: new("task_states"), MinHealthyTime: new(time.Second),
			HealthyDeadline: new(20 * time.Second), ProgressDeadline: new(time.Minute), AutoRevert: &revert,
		}
	}}
}

func (w *World) latestDeployment(name string) *api.Deployment {
	d, _, err := w.Author.Jobs().LatestDeployment(name, nil)
	if err != nil {
		w.T.Fatal(err)
	}
	return d
}

// canary waits until the canary of the newest version is healthy, and returns its deployment.
func (w *World) canary(name string, within time.Duration) (d *api.Deployment) {
	w.T.Helper()
	w.Expect("its canary is healthy", within, func() bool {
		d = w.latestDeployment(name)
		g := d.TaskGroups["workers"]
		return d.Status == api.DeploymentStatusRunning && g != nil && g.DesiredCanaries > 0 && g.HealthyAllocs > 0
	})
	return d
}
