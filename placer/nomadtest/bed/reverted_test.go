// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// A service is scaled up beyond what fits (nomad job scale, or Nomad's autoscaler). It gets no gate,
// because behind a gate Nomad would not retry any member that fails. (Nomad also retries none once the deployment has failed for lack of room: scenario "fails
// after its deployment has failed".)
func TestServiceScaledUpDiesOut(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		w.Submit(Gang{Name: "serve", Service: true, Members: 2, Reschedules: 20, Runs: time.Hour, Exit: 1})
		w.ExpectRunning("serve", time.Minute)
		w.Submit(Gang{Name: "train", Members: 2, Runs: 100 * time.Hour})
		w.ExpectRunning("train", time.Minute)
		w.RunFor(90 * time.Minute)
		if n := len(w.Members(Key("serve"))); n != 2 {
			t.Fatalf("before it was scaled it had %d members", n)
		}
		w.scale("serve", 3)
		w.RunFor(20 * time.Minute)
		if n, as := len(w.Members(Key("serve"))), Carries(w.Nomad.Job(Key("serve"))); n != 2 || as != "pinned" {
			e := w.explained("serve")
			t.Errorf("%d of 2 members, %s: %s: %s:\n%s", n, as, e.State, e.Reason.String(), w.Describe())
		}
	})
}

// A gang is stopped for another gang and waits. Its author reverts it (nomad job revert) to the
// version that ran, while the other gang runs. The gang waits for its turn, and the other keeps
// running.
func TestRevertedWhileItWaits(t *testing.T) {
	Run(t, Options{Seed: 1, Placer: preempting}, func(w *World) {
		w.AddNodes(1, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, Runs: 5 * time.Hour, Priority: 20, Meta: map[string]string{"pal_preempt": "true"}})
		w.ExpectRunning("a", 10*time.Second)
		ran := copyOf(w.Nomad.Job(Key("a")))
		w.RunFor(2 * time.Hour)
		w.Submit(Gang{Name: "urgent", Members: 1, Runs: time.Hour, Priority: 90})
		w.ExpectRunning("urgent", 5*time.Minute)
		w.RunFor(time.Minute)
		if err := w.Register(ran); err != nil {
			t.Fatal(err)
		}
		w.RunFor(5 * time.Minute)
		w.ExpectWaiting("a", 30*time.Minute)
		w.ExpectFinished("urgent", time.Hour)
		w.ExpectRunning("a", 5*time.Minute)
		w.RunFor(time.Minute)
		if r := w.decision("a"); r.Attained < 2*time.Hour {
			w.T.Errorf("it ran two hours, but %v are recorded", r.Attained)
		}
	})
}

// A service with pins to a class had to leave its node, which other jobs have now. Its author
// reverts it to the version that ran there (nomad job revert). That version runs, on other nodes.
func TestServiceRevertedToFullNodes(t *testing.T) {
	for _, pin := range []string{"class", "gpu"} {
		t.Run(pin, func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(2, 2)
				w.StartPlacer()
				w.Submit(Gang{Name: "serve", Service: true, Members: 2, Meta: map[string]string{"pal_pin": pin, "pal_locality": "node"}})
				w.ExpectRunning("serve", time.Minute)
				w.RunFor(time.Minute)
				ran, node := copyOf(w.Nomad.Job(Key("serve"))), w.Members(Key("serve"))[0].Node
				w.Nomad.Drain(node)
				w.RunFor(5 * time.Minute)
				w.ExpectRunning("serve", time.Minute)
				if err := w.Edit(Key("serve"), func(j *api.Job) { j.Meta["version"] = "2" }); err != nil {
					t.Fatal(err)
				}
				w.RunFor(5 * time.Minute)
				w.ExpectRunning("serve", time.Minute)
				w.Nomad.SetEligible(node, true)
				w.Submit(Gang{Name: "full", Members: 2, Runs: 100 * time.Hour})
				w.ExpectRunning("full", time.Minute)
				if err := w.Register(ran); err != nil {
					t.Fatal(err)
				}
				w.RunFor(30 * time.Minute)
				for _, m := range w.Members(Key("serve")) {
					if m.Version.Meta["version"] != "" {
						e := w.explained("serve")
						t.Errorf("member %d runs version %d of the job, not the version that its author wants: %s: %s\n%s", m.Number, *m.Version.Version, e.State, e.Reason.String(), w.Describe())
					}
				}
			})
		})
	}
}

// A new version of a service fails, and Nomad reverts to the previous version (auto_revert). That
// version stays in force until the author registers another.
func TestRevertedByNomad(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 4)
		p := w.StartPlacer()
		w.Submit(Gang{Name: "serve", Service: true, Members: 3, Change: func(j *api.Job) {
			j.TaskGroups[0].Update = &api.UpdateStrategy{MaxParallel: new(1), MinHealthyTime: new(5 * time.Second), AutoRevert: new(true)}
		}})
		w.ExpectRunning("serve", time.Minute)
		w.RunFor(time.Minute)
		fails := func(j *api.Job) { runsScript(j.TaskGroups[0], "sleep 2; exit 1") }
		if err := w.Edit(Key("serve"), fails); err != nil {
			t.Fatal(err)
		}
		w.Expect("Nomad reverts it", 5*time.Minute, func() bool { return w.rules.counted().reverted == 1 })
		p.Kill()
		w.StartPlacer()
		w.RunFor(30 * time.Minute)
		w.ExpectRunning("serve", 0)
		for _, m := range w.Members(Key("serve")) {
			if *m.Version.JobModifyIndex != *w.Nomad.Job(Key("serve")).JobModifyIndex {
				t.Errorf("member %d runs version %d:\n%s", m.Number, *m.Version.Version, w.Describe())
			}
		}
		if n := w.rules.counted().reverted; n != 1 {
			t.Errorf("Nomad has reverted it %d times:\n%s", n, w.Describe())
		}
	})
}

// A service's version with more members has room only elsewhere, and its deployment fails because
// none of its members becomes healthy. The healthy members of the previous version keep running, as
// Nomad leaves them. A restart of the whole service would bring up the version that has failed.
func TestFailedDeploymentElsewhere(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "serve", Service: true, Members: 2, Change: func(j *api.Job) {
			j.TaskGroups[0].Update = &api.UpdateStrategy{
				MaxParallel: new(1), HealthCheck: new("task_states"), MinHealthyTime: new(5 * time.Second),
				HealthyDeadline: new(30 * time.Second), ProgressDeadline: new(time.Minute),
			}
		}})
		w.ExpectRunning("serve", time.Minute)
		w.RunFor(time.Minute)
		before := w.Members(Key("serve"))
		w.AddNodes(1, 4)
		w.RunFor(time.Minute)
		if err := w.Edit(Key("serve"), func(j *api.Job) {
			j.TaskGroups[0].Count, j.TaskGroups[0].Update.HealthCheck = new(3), new("manual")
		}); err != nil {
			t.Fatal(err)
		}
		w.RunFor(30 * time.Minute)
		if n := w.stillThere(before); n != 2 || len(w.Members(Key("serve"))) != 3 {
			t.Errorf("%d of 2 of the version before run:\n%s", n, w.Describe())
		}
		if e := w.explained("serve"); !strings.Contains(e.Reason.String(), "3 of 3 members run") {
			t.Errorf("%s: %s", e.State, e.Reason.String())
		}
	})
}

// stillThere counts the members that still run.
func (w *World) stillThere(were []nomadtest.Member) (n int) {
	for _, m := range were {
		if slices.ContainsFunc(w.Members(m.Job), func(is nomadtest.Member) bool { return is.ID == m.ID }) {
			n++
		}
	}
	return n
}
