// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// release asks the placer that was started last to hand a job over to Nomad.
func (w *World) release(name string) {
	w.T.Helper()
	said := &gang.Said{By: "somebody", At: time.Now()}
	if _, err := w.placers[len(w.placers)-1].Control(w.T.Context(), cluster.JobKey(Key(name)), func(c *gang.Control) { c.Release = said }); err != nil {
		w.T.Fatal(err)
	}
}

// expectHandedOver expects that Nomad alone manages the job, that all its members run, and that
// none of them was restarted. If tied, the members must be the given ones.
func (w *World) expectHandedOver(name string, members int, within time.Duration) {
	w.T.Helper()
	w.Expect(name+" is handed over", within, func() bool {
		job := w.Nomad.Job(Key(name))
		_, pinned := rewrite.Pinned(job)
		return !pinned && !rewrite.Gated(job) && w.Running(Key(name))
	})
	w.RunFor(time.Minute)
	if all := w.Nomad.Members(Key(name)); len(all) != members || !w.Running(Key(name)) {
		w.T.Errorf("%s has had %d members, want %d, which all run\n%s", name, len(all), members, w.Describe())
	}
}

// A waiting gang is released: it starts when all its members fit, and is then as its author wrote
// it. Its members are not restarted.
func TestReleaseOfAWaitingGang(t *testing.T) {
	for name, a := range map[string]Gang{
		"gang":          {Name: "a", Members: 4, Runs: time.Hour},
		"of one member": {Name: "a", Members: 1, GPUs: 3, Runs: time.Hour},
		"service":       {Name: "a", Members: 4, Service: true},
		"pinned softly": {Name: "a", Members: 4, Runs: time.Hour, Meta: map[string]string{"pal_pin": "prefer"}},
		"by class":      {Name: "a", Members: 4, Runs: time.Hour, Meta: map[string]string{"pal_pin": "class"}},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(2, 2)
				w.StartPlacer()
				w.Submit(Gang{Name: "fills", Members: 2, Runs: 10 * time.Minute})
				w.ExpectRunning("fills", 10*time.Second)
				if a.GPUs == 3 {
					w.AddNodes(1, 3)
					w.Submit(Gang{Name: "large", GPUs: 3, Runs: 10 * time.Minute})
					w.ExpectRunning("large", 10*time.Second)
				}
				w.Submit(a)
				w.ExpectWaiting("a", 10*time.Second)
				w.release("a")
				w.ExpectWaiting("a", 5*time.Minute)
				w.expectHandedOver("a", a.Members, 10*time.Minute)
				if job := w.Nomad.Job(Key("a")); rewrite.Tied(job) {
					t.Errorf("constraints of the placer are left: %s", Carries(job))
				}
			})
		})
	}
}

// A running gang is released. Nomad would restart it if its device blocks changed, so constraints
// that name its GPUs stay in it.
func TestReleaseOfARunningGang(t *testing.T) {
	for name, a := range map[string]Gang{
		"gang":          {Name: "a", Members: 2, Runs: time.Hour},
		"service":       {Name: "a", Members: 2, Service: true},
		"pinned softly": {Name: "a", Members: 2, Runs: time.Hour, Meta: map[string]string{"pal_pin": "prefer"}},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(2, 2)
				w.StartPlacer()
				w.Submit(a)
				w.ExpectRunning("a", 10*time.Second)
				w.RunFor(30 * time.Second)
				w.release("a")
				w.expectHandedOver("a", 2, 30*time.Second)
				author := rewrite.Author(w.Nomad.Job(Key("a")))
				if rewrite.Tied(author) || rewrite.Gated(author) {
					t.Errorf("the author's job is not restored: %s", Carries(author))
				}
			})
		})
	}
}

// The author edits a job that waits for its release. The new version is released.
func TestReleaseOfAnEditedJob(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "fills", Members: 2, Runs: 10 * time.Minute})
		w.ExpectRunning("fills", 10*time.Second)
		w.Submit(Gang{Name: "a", Members: 4, Runs: time.Hour})
		w.RunFor(10 * time.Second)
		w.release("a")
		w.RunFor(10 * time.Second)
		if err := w.Edit(Key("a"), func(job *api.Job) { job.TaskGroups[0].Tasks[0].Env = map[string]string{"RUN": "2"} }); err != nil {
			t.Fatal(err)
		}
		w.expectHandedOver("a", 4, 15*time.Minute)
		if env := w.Nomad.Job(Key("a")).TaskGroups[0].Tasks[0].Env; !maps.Equal(env, map[string]string{"RUN": "2"}) {
			t.Errorf("%v: want the author's last version", env)
		}
	})
}

// The agent is killed and started again: before the gang starts, and as soon as the gang has started.
func TestReleaseOutlivesTheAgent(t *testing.T) {
	for _, when := range []string{"before the start", "after the start"} {
		t.Run(when, func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(2, 2)
				p := w.StartPlacer()
				w.Submit(Gang{Name: "fills", Members: 2, Runs: 10 * time.Minute})
				w.ExpectRunning("fills", 10*time.Second)
				w.Submit(Gang{Name: "a", Members: 4, Service: true}) // its deployment delays the release
				w.RunFor(10 * time.Second)
				w.release("a")
				if when == "after the start" {
					w.Expect("a starts", 15*time.Minute, func() bool { return Carries(w.Nomad.Job(Key("a"))) == "pinned" })
				}
				p.Kill()
				w.RunFor(time.Minute)
				w.StartPlacer()
				w.expectHandedOver("a", 4, 15*time.Minute)
			})
		})
	}
}

// A job that waits for its release is purged, and run again: the new job is not released, because
// the placer has deleted the order. The same holds after the release.
func TestReleaseEndsWithTheJob(t *testing.T) {
	for _, purged := range []bool{true, false} {
		Run(t, Options{Seed: 1}, func(w *World) {
			w.AddNodes(1, 2)
			w.StartPlacer()
			a := Gang{Name: "a", Members: 2, Runs: 10 * time.Minute}
			if purged {
				w.Submit(Gang{Name: "fills", Members: 2, Runs: 10 * time.Minute})
				w.ExpectRunning("fills", 10*time.Second)
			}
			w.Submit(a)
			w.RunFor(10 * time.Second)
			w.release("a")
			w.RunFor(10 * time.Second)
			if purged {
				if err := w.Purge(Key("a")); err != nil {
					t.Fatal(err)
				}
			} else {
				w.ExpectFinished("a", 20*time.Minute)
			}
			w.RunFor(time.Minute)
			if is, err := store.In(w.client()).Controls().Read(w.T.Context()); err != nil || len(is) > 0 {
				t.Errorf("purged %v: %v is still stored (%v)", purged, is, err)
			}
			a.Runs = time.Hour
			w.Submit(a)
			w.ExpectRunning("a", 20*time.Minute)
			w.RunFor(time.Minute)
			if _, pinned := rewrite.Pinned(w.Nomad.Job(Key("a"))); !pinned {
				t.Errorf("purged %v: the job is released again", purged)
			}
		})
	}
}

// A member of a gang that starts for its release is lost. The members that run keep running until
// the whole gang is requeued or complete; nothing names GPUs, so that the release restarts nobody.
func TestReleaseOfAGangThatLosesANode(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(3, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "fills", Members: 4, Runs: 10 * time.Minute})
		w.ExpectRunning("fills", 10*time.Second)
		w.Submit(Gang{Name: "a", Members: 4, Service: true}) // its deployment delays the release
		w.RunFor(10 * time.Second)
		w.release("a")
		w.Expect("a starts", 15*time.Minute, func() bool { return Carries(w.Nomad.Job(Key("a"))) == "pinned" })
		w.Expect("a has members", time.Minute, func() bool { return len(w.Members(Key("a"))) == 4 })
		w.Nomad.CrashNode(w.Members(Key("a"))[0].Node)
		w.Expect("a is handed over", 15*time.Minute, func() bool {
			_, pinned := rewrite.Pinned(w.Nomad.Job(Key("a")))
			return !pinned && w.Running(Key("a"))
		})
		gpus := w.GPUs(Key("a"))
		w.RunFor(10 * time.Minute)
		if now := w.GPUs(Key("a")); !slices.Equal(gpus, now) {
			t.Errorf("%v became %v", gpus, now)
		}
	})
}
