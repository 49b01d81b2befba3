// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"testing"
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

// A version to which Nomad has reverted stays in force, even if Nomad no longer keeps that version
// and a later one requested the same (walk 188).
func TestRevertedToAVersionThatIsNotKept(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 2)
		p := w.StartPlacer()
		w.Submit(deployed(0, true))
		w.ExpectRunning("s", 10*time.Second)
		w.RunFor(time.Minute)
		p.Kill()
		for _, script := range []string{"true 1", "sleep infinity", "true 2", "true 3", "sleep 0.2; exit 1"} {
			w.RunFor(time.Second)
			if err := w.Edit(Key("s"), func(j *api.Job) { runsScript(j.TaskGroups[0], script) }); err != nil {
				t.Fatal(err)
			}
		}
		w.StartPlacer()
		w.Expect("Nomad puts a version back", 5*time.Minute, func() bool { return w.rules.counted().reverted > 0 })
		version := *w.Nomad.Job(Key("s")).Version
		w.RunFor(5 * time.Minute)
		if now := *w.Nomad.Job(Key("s")).Version; now != version {
			t.Errorf("version %d, then %d:\n%s", version, now, w.Describe())
		}
	})
}
