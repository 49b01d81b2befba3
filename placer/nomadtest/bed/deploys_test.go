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

// A canary waits for its author, who promotes it or fails its deployment.
func TestCanaryWaitsForItsAuthor(t *testing.T) {
	for _, promoted := range []bool{true, false} {
		Run(t, Options{Seed: 1}, func(w *World) {
			w.AddNodes(2, 2)
			w.StartPlacer()
			w.Submit(deployed(1, true))
			w.ExpectRunning("s", 10*time.Second)
			w.RunFor(time.Minute)
			old := w.Members(Key("s"))
			w.update("s")
			d := w.canary("s", 5*time.Minute)
			w.RunFor(10 * time.Minute)
			if n := len(w.Members(Key("s"))); n != 3 {
				t.Fatalf("%d members", n)
			}
			decide := w.Author.Deployments().Fail
			if promoted {
				decide = w.Author.Deployments().PromoteAll
			}
			if _, _, err := decide(d.ID, nil); err != nil {
				t.Fatal(err)
			}
			w.RunFor(2 * time.Minute)
			now, same := w.Members(Key("s")), 0
			for _, m := range now {
				for _, o := range old {
					if m.ID == o.ID {
						same++
					}
				}
			}
			if want := map[bool]int{true: 0, false: 2}[promoted]; len(now) != 2 || same != want {
				t.Errorf("promoted %v: %d members, %d of them old:\n%s", promoted, len(now), same, w.Describe())
			}
		})
	}
}

// A service was stopped, and run again as a version that fails. Nomad reverts to the stopped
// version (scenario "reverted to a stopped version"), and the service stays stopped.
func TestRevertedToAStoppedVersion(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 2)
		w.StartPlacer()
		w.Submit(deployed(0, true))
		w.ExpectRunning("s", 10*time.Second)
		w.RunFor(time.Minute)
		if err := w.Stop(Key("s")); err != nil {
			t.Fatal(err)
		}
		w.RunFor(time.Minute)
		if err := w.Edit(Key("s"), func(j *api.Job) { runsScript(j.TaskGroups[0], "sleep 0.2; exit 1") }); err != nil {
			t.Fatal(err)
		}
		w.RunFor(10 * time.Minute)
		if job := w.Nomad.Job(Key("s")); *job.Status != "dead" || !*job.Stop {
			t.Errorf("it runs again:\n%s", w.Describe())
		}
	})
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
