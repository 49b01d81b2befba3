// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

func preempting(c *model.Config) { c.Queue.Order, c.Queue.Preempt = queue.FIFO, true }

// checkpoints makes a job's members exit with 0 when they are asked to end.
func checkpoints(j *api.Job) {
	args := j.TaskGroups[0].Tasks[0].Config["args"].([]string)
	args[1] = "trap 'exit 0' INT; " + args[1]
}

// restart does nomad alloc restart for each member.
func (w *World) restart(name string) {
	w.T.Helper()
	for _, m := range w.Members(Key(name)) {
		if err := w.Author.Allocations().Restart(&api.Allocation{ID: m.ID}, "work", nil); err != nil {
			w.T.Fatal(err)
		}
	}
}

// An operator restarts a gang in place (nomad alloc restart), and its program exits with 0 on the
// signal. Hours later it is preempted. Its work is not done, so it starts again.
func TestRestartedThenPreempted(t *testing.T) {
	Run(t, Options{Seed: 1, Placer: preempting}, func(w *World) {
		w.AddNodes(1, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, Runs: 5 * time.Hour, Priority: 20, Meta: map[string]string{"pal_preempt": "true"}, Change: checkpoints})
		w.ExpectRunning("a", 10*time.Second)
		w.RunFor(10 * time.Minute)
		w.restart("a")
		w.RunFor(10 * time.Minute)
		w.Submit(Gang{Name: "urgent", Members: 2, Runs: time.Minute, Priority: 90})
		w.ExpectFinished("urgent", 5*time.Minute)
		w.ExpectRunning("a", 5*time.Minute)
	})
}

// scale does nomad job scale: it changes only the count of the job as it is now.
func (w *World) scale(name string, count int) {
	w.T.Helper()
	job := copyOf(w.Nomad.Job(Key(name)))
	job.TaskGroups[0].Count = &count
	if err := w.Register(job); err != nil {
		w.T.Fatal(err)
	}
}

// A job is scaled to no members, which is how an author pauses it, or is run with no members. It
// counts as ended, and runs once it gets members again. Meanwhile nothing waits for it.
func TestScaledToNothing(t *testing.T) {
	none := func(job *api.Job) { job.TaskGroups[0].Count = new(0) }
	for name, rest := range map[string]func(w *World){
		"by scaling": func(w *World) { w.scale("a", 0) },
		"by its file": func(w *World) {
			if err := w.Edit(Key("a"), none); err != nil {
				w.T.Fatal(err)
			}
		},
	} {
		for _, service := range []bool{false, true} {
			for _, from := range []string{"new", "waiting", "running"} {
				t.Run(fmt.Sprintf("%s, %s, service %v", name, from, service), func(t *testing.T) {
					Run(t, Options{Seed: 1}, func(w *World) {
						w.AddNodes(1, 4)
						w.StartPlacer()
						a := Gang{Name: "a", Members: 2, Service: service, Runs: map[bool]time.Duration{false: time.Hour}[service]}
						switch from {
						case "new":
							a.Change = none
						case "waiting":
							w.Submit(Gang{Name: "first", Members: 4, Runs: 10 * time.Minute})
							w.ExpectRunning("first", 10*time.Second)
						}
						w.Submit(a)
						if from == "running" {
							w.ExpectRunning("a", 10*time.Second)
						}
						w.RunFor(time.Minute)
						ready := w.explained("a").Ready
						rest(w)
						w.ExpectGone("a", time.Minute)
						w.RunFor(5 * time.Second) // until the placer has noticed
						if e := w.explained("a"); !e.Ready.Equal(ready) {
							t.Errorf("all its members ran at %s, not at %s, with none", ready, e.Ready)
						}
						if e := w.explained("a"); e.State != palapi.Ended || e.Outcome.Status != palapi.AtRest || !strings.Contains(e.Reason.String(), "count = 0") {
							t.Errorf("without members it is %s: %s", e.State, e.Reason.String())
						}
						if js := w.snapshot().Jobs(); slices.ContainsFunc(js, func(j palapi.JobStatus) bool { return j.Job == "a" }) {
							t.Errorf("without members it is listed: %+v", js)
						}
						w.RunFor(time.Hour)
						w.scale("a", 2)
						w.ExpectRunning("a", time.Minute)
						if n := len(w.GPUs(Key("a"))); n != 2 {
							t.Errorf("it runs on %d GPUs", n)
						}
					})
				})
			}
		}
	}
}

// A gang has finished, and its author stops it twice, to tidy up. A job that waits for it starts.
func TestAfterAJobStoppedTwice(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "z", Members: 2, Runs: time.Minute})
		w.ExpectFinished("z", 5*time.Minute)
		w.RunFor(time.Minute)
		for range 2 {
			if err := w.Stop(Key("z")); err != nil {
				t.Fatal(err)
			}
			w.RunFor(10 * time.Second)
		}
		w.Submit(Gang{Name: "a", Runs: time.Minute, Meta: map[string]string{"pal_after": "z"}})
		w.ExpectRunning("a", 2*time.Minute)
	})
}

// A job is held right after its submission, and another job gets a command before the placer has
// seen the first job. The hold stays. The commands of a purged job are forgotten.
func TestHeldAtOnce(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 4)
		p := w.StartPlacer()
		w.Submit(Gang{Name: "other", GPUs: 4, Runs: time.Hour})
		w.ExpectRunning("other", 10*time.Second)
		tell := func(name string, c gang.Control) {
			w.T.Helper()
			if _, err := p.Control(w.T.Context(), Key(name), func(of *gang.Control) { *of = c }); err != nil {
				w.T.Fatal(err)
			}
		}
		w.Nomad.SetEventFaults(nomadtest.EventFaults{Late: 1, Delay: 10 * time.Second})
		w.Submit(Gang{Name: "a", Runs: time.Minute})
		tell("a", gang.Control{Held: &gang.Said{By: "ada", At: time.Now()}})
		tell("other", gang.Control{Priority: 60})
		w.Nomad.SetEventFaults(nomadtest.EventFaults{})
		if err := w.Purge(Key("other")); err != nil {
			w.T.Fatal(err)
		}
		w.ExpectWaiting("a", time.Minute)
		if e := w.explained("a"); e.Reason.Kind != reason.Held {
			w.T.Errorf("a waits: %s", e.Reason)
		}
		tell("a", gang.Control{Priority: 70})
		w.ExpectFinished("a", 5*time.Minute)
		c, err := nomad.NewClient(w.Nomad.Config("operator", ""), "default")
		if err != nil {
			w.T.Fatal(err)
		}
		if is, err := store.In(c).Controls().Read(w.T.Context()); err != nil || len(is) != 1 {
			w.T.Errorf("kept: %v, %v", is, err)
		}
	})
}

// Long orders of one namespace take no space from the orders of other namespaces. Authors can make
// orders long, because Nomad limits the length of a variable, but not of a job's id.
func TestOrdersOfOneNamespace(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 4)
		p := w.StartPlacer()
		held := func(of *gang.Control) { of.Held = &gang.Said{By: "ada", At: time.Now()} }
		for _, g := range []Gang{{Namespace: "research", Name: strings.Repeat("x", 61_320), GPUs: 8}, {Name: "a", GPUs: 8}} {
			for n := range 2 {
				g.Name += strings.Repeat("y", 5_000*n)
				w.Submit(g)
				k := g.Job()
				_, err := p.Control(w.T.Context(), cluster.JobKey{Namespace: *k.Namespace, ID: *k.ID}, held)
				if full := g.Namespace == "research" && n == 1; full != errors.Is(err, store.ErrNotStorable) || !full && err != nil {
					w.T.Errorf("holding job %.10s in namespace %s: %.200v", g.Name, *k.Namespace, err)
				}
			}
		}
		w.RunFor(10 * time.Second)
		if e := w.explained("a"); e.Reason.Kind != reason.Held {
			w.T.Errorf("a waits: %s", e.Reason)
		}
	})
}

// A job is held, and the placer's first attempt to read the holds fails. It starts nothing before
// it has read them.
func TestHeldBeforeItIsRead(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 4)
		p := w.StartPlacer()
		w.Submit(Gang{Name: "before", Runs: time.Minute})
		w.ExpectRunning("before", 10*time.Second)
		w.Nomad.Fail(p.Name, "GET /v1/var/nomad-pal/controls/default", nomadtest.Failed, 1)
		c, err := nomad.NewClient(w.Nomad.Config("operator", ""), "default")
		if err != nil {
			w.T.Fatal(err)
		}
		kept := store.In(c).ControlsOf("default")
		is, err := kept.Read(w.T.Context())
		if err != nil {
			w.T.Fatal(err)
		}
		held := map[string]gang.Control{Key("a").Namespace + "/a": {Held: &gang.Said{By: "ada", At: time.Now()}}}
		if _, err := kept.Change(w.T.Context(), is, func(store.Value[map[string]gang.Control]) (map[string]gang.Control, error) { return held, nil }); err != nil {
			w.T.Fatal(err)
		}
		p.Reread()
		w.Submit(Gang{Name: "a", Runs: time.Minute})
		w.RunFor(10 * time.Second)
		if got := w.GPUs(Key("a")); len(got) > 0 {
			w.T.Errorf("a is held and has %v", got)
		}
		if e := w.explained("a"); e.Reason.Kind != reason.Held {
			w.T.Errorf("a waits: %s", e.Reason)
		}
	})
}

// Nomad answers a request of a cycle slowly. Meanwhile an operator gives an order about a waiting job
// (found by the walk 25118) or about a GPU, and the GPUs that the job waits for become free. The
// placer does not start the job.
func TestOrderDuringALongCycle(t *testing.T) {
	for what, order := range map[string]func(*World, *Placer) error{
		"hold": func(w *World, p *Placer) error {
			_, err := p.Control(w.T.Context(), Key("a"), func(of *gang.Control) { of.Held = &gang.Said{By: "ada", At: time.Now()} })
			return err
		},
		"quarantine": func(w *World, p *Placer) error {
			c, err := nomad.NewClient(w.Nomad.Config("operator", ""), "default")
			if err == nil {
				err = placer.PutInQuarantine(w.T.Context(), c, time.Hour, "inspection", "GPU-0-0", "GPU-0-1", "GPU-0-2")
			}
			p.Reread()
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(1, 4)
				p := w.StartPlacer()
				w.Submit(Gang{Name: "full", GPUs: 3, Runs: time.Hour})
				w.ExpectRunning("full", 10*time.Second)
				w.Submit(Gang{Name: "a", GPUs: 3, Runs: time.Hour})
				w.ExpectWaiting("a", 10*time.Second)
				w.Nomad.Fail(p.Name, "PUT /v1/var/nomad-pal/quarantine", nomadtest.Slow, 1)
				w.Submit(Gang{Name: "fails", Change: func(j *api.Job) {
					j.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", "sleep 5; exit 1"}
				}})
				w.Expect("a cycle takes long", time.Minute, func() bool { return w.Nomad.Faults()["slow"] > 0 })
				if err := w.Stop(Key("full")); err != nil {
					w.T.Fatal(err)
				}
				if err := order(w, p); err != nil {
					w.T.Fatal(err)
				}
				w.RunFor(30 * time.Second)
				if got := w.GPUs(Key("a")); len(got) > 0 {
					w.T.Errorf("a has %v", got)
				}
			})
		})
	}
}

// A tenant's block misspells a namespace. The placer warns until Nomad has the namespace.
func TestTenantOfNoNamespace(t *testing.T) {
	Run(t, Options{Seed: 1, Placer: func(c *model.Config) {
		c.Queue.Tenants = map[string]queue.Tenant{"ml": {Namespaces: []string{"default", "resaerch", "ml-*"}}, "unused": {}}
	}}, func(w *World) {
		w.AddNodes(1, 4)
		p := w.StartPlacer()
		const want = `tenant "ml" names namespace "resaerch", which Nomad does not have`
		w.Expect("it warns", 10*time.Second, func() bool { return slices.Equal(p.Status().Warnings, []string{want}) })
		w.Nomad.AddNamespace("resaerch")
		w.Expect("it no longer warns", time.Minute, func() bool { return len(p.Status().Warnings) == 0 })
	})
}

// Nomad does not evaluate jobs, because an operator has paused that. The placer warns until the
// gang has started.
func TestNothingIsEvaluated(t *testing.T) {
	Run(t, Options{Seed: 1, Nomad: nomadtest.Options{Scheduling: 4 * time.Minute}, Partial: time.Hour}, func(w *World) {
		w.AddNodes(1, 4)
		p := w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, Runs: time.Hour})
		w.RunFor(90 * time.Second)
		if ws := p.Status().Warnings; len(ws) > 0 {
			t.Errorf("after a short while: %v", ws)
		}
		w.Expect("it warns", 5*time.Minute, func() bool {
			return strings.Contains(strings.Join(p.Status().Warnings, ""), "Nomad has placed no member of 1 gang that nomad-pal started (the first was started 2000-01-01 00:0")
		})
		w.ExpectRunning("a", time.Hour)
		w.Expect("it no longer warns", time.Minute, func() bool { return len(p.Status().Warnings) == 0 })
	})
}
