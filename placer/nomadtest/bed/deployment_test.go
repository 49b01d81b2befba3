// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A canary is shown. explain shows that the deployment waits for promotion, and the version of each
// member. status shows that the canary runs beside the old members.
func TestCanaryIsSeen(t *testing.T) {
	for name, auto := range map[string]bool{"promoted by hand": false, "promoted by Nomad": true} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(4, 2)
				w.StartPlacer()
				w.Submit(Gang{Name: "web", Service: true, Members: 3, Change: func(j *api.Job) {
					j.TaskGroups[0].Update = &api.UpdateStrategy{
						Canary: new(1), AutoPromote: &auto, MinHealthyTime: new(5 * time.Second), MaxParallel: new(1),
						HealthyDeadline: new(time.Minute), ProgressDeadline: new(10 * time.Minute), Stagger: new(time.Second), HealthCheck: new("task_states"),
					}
				}})
				w.ExpectRunning("web", time.Minute)
				w.RunFor(time.Minute)
				if e := w.explained("web"); e.Deployment != nil {
					t.Errorf("the deployment has ended, but is shown: %+v", e.Deployment)
				}
				w.update("web")
				var kinds []reason.Kind
				for range 300 {
					w.RunFor(time.Second)
					e := w.explained("web")
					if e.Deployment == nil {
						continue
					}
					for _, m := range e.Members {
						if !slices.Contains(kinds, m.Kind) {
							kinds = append(kinds, m.Kind)
						}
					}
					if e.Deployment.Promote {
						news := 0
						for _, a := range e.Allocations {
							if a.Version != nil && *a.Version == e.Deployment.Version {
								news++
							}
						}
						if news != 1 || len(e.Allocations) != 4 {
							t.Errorf("%d members of the new version: %+v", news, e.Allocations)
						}
						break
					}
				}
				if want := !auto; slices.Contains(kinds, reason.WaitsPromotion) != want {
					t.Errorf("shown: %q", kinds)
				}
				if !slices.Contains(kinds, reason.Deploys) {
					t.Errorf("an active deployment is not shown: %q", kinds)
				}
				for _, j := range w.snapshot().Jobs() {
					if got := j.Reason.Kind == reason.CanariesRun; j.Job == "web" && got == auto {
						t.Errorf("status: %q", j.Reason.String())
					}
					if e := w.explained("web"); j.Job == "web" && !auto && e.Reason.String() != j.Reason.String() {
						t.Errorf("explain: %q, status: %q", e.Reason.String(), j.Reason.String())
					}
				}
			})
		})
	}
}

// A new version of a service is registered with a gate while no agent is active, so Nomad does not
// replace a drained member, as it would not if any other constraint kept canaries away. After the
// deployment has failed, Nomad places the member only for another version. Explain says how, and
// release does not wait for the member.
func TestMissingAfterAFailedDeployment(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(4, 2)
		p := w.StartPlacer()
		w.Submit(deployed(1, false))
		w.ExpectRunning("s", time.Minute)
		w.RunFor(time.Minute)
		old := w.Members(Key("s"))
		p.Kill()
		if err := w.Edit(Key("s"), func(j *api.Job) {
			j.TaskGroups[0].Tasks[0].Env = map[string]string{"VERSION": "2"}
			*j = *rewrite.Gate(rewrite.Author(j))
		}); err != nil {
			t.Fatal(err)
		}
		w.RunFor(10 * time.Second)
		w.Nomad.Drain(old[0].Node)
		w.RunFor(30 * time.Second)
		w.StartPlacer()
		d := w.canary("s", time.Minute)
		if _, _, err := w.Author.Deployments().Fail(d.ID, nil); err != nil {
			t.Fatal(err)
		}
		w.RunFor(5 * time.Minute)
		if e := w.explained("s"); len(w.Members(Key("s"))) != 1 || !strings.Contains(strings.Join(e.Next(""), "\n"), "nomad job revert") {
			t.Fatalf("%d members, next steps %q: %s", len(w.Members(Key("s"))), e.Next(""), e.Headline(time.Now()))
		}
		w.release("s")
		w.Expect("it is released", time.Minute, func() bool {
			_, pinned := rewrite.Pinned(w.Nomad.Job(Key("s")))
			return !pinned
		})
	})
}
