// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A gang becomes smaller or larger while it runs. No two members get the same GPU, and no member
// starts on a GPU that another still uses, because a new member does not wait for an old one.
func TestResizedMembersShareNoGPU(t *testing.T) {
	for name, members := range map[string][2]int{"smaller": {4, 3}, "larger": {2, 4}, "larger, beside what it has": {1, 2}} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(8) {
				Run(t, Options{Seed: seed, Nomad: nomadtest.Options{Kill: 10 * time.Second}}, func(w *World) {
					w.AddNodes(2, 2)
					w.Nomad.Observe(nomadtest.Observer{Shared: func(gpu string, a, b nomadtest.Member) {
						t.Errorf("seed %d: %s[%d] starts on GPU %s, which still runs %s[%d]", seed, b.Job, b.Number, gpu, a.Job, a.Number)
					}})
					w.StartPlacer()
					w.Submit(Gang{Name: "a", Members: members[0], GPUs: 1, Runs: time.Hour})
					w.ExpectRunning("a", 10*time.Second)
					if err := w.Edit(Key("a"), func(job *api.Job) { job.TaskGroups[0].Count = new(members[1]) }); err != nil {
						t.Fatal(err)
					}
					w.Expect("the new size", 30*time.Second, func() bool { return len(w.Members(Key("a"))) == members[1] })
					w.ExpectRunning("a", 30*time.Second)
					if gpus := w.GPUs(Key("a")); len(slices.Compact(slices.Sorted(slices.Values(gpus)))) != members[1] {
						t.Errorf("seed %d: its %d members have GPUs %q", seed, members[1], gpus)
					}
				})
			}
		})
	}
}

// A gang is scaled up with its pins unchanged (nomad job scale). It keeps running until all its
// members fit, even if its author then runs the job file with that count.
func TestScaledUpRunsOn(t *testing.T) {
	for name, then := range map[string]func(*World) error{
		"": func(*World) error { return nil },
		"and run again": func(w *World) error {
			return w.Edit(Key("a"), func(job *api.Job) { job.TaskGroups[0].Count = new(4) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(2, 2)
				w.StartPlacer()
				w.Submit(Gang{Name: "a", Members: 2, GPUs: 1, Runs: time.Hour})
				w.ExpectRunning("a", 10*time.Second)
				w.Submit(Gang{Name: "b", Members: 2, GPUs: 1, Runs: 10 * time.Minute})
				w.ExpectRunning("b", 10*time.Second)
				w.Submit(Gang{Name: "wide", Members: 2, GPUs: 1, Runs: time.Minute})
				was := w.Members(Key("a"))
				scaled := w.Nomad.Job(Key("a"))
				scaled.TaskGroups[0].Count = new(4)
				if err := errors.Join(w.Register(scaled), then(w)); err != nil {
					w.T.Fatal(err)
				}
				for range 60 {
					w.RunFor(time.Second)
					if is := w.Members(Key("a")); len(is) != 2 || is[0].ID != was[0].ID || is[1].ID != was[1].ID {
						w.T.Fatalf("it does not keep running:\n%s", w.Describe())
					}
				}
				w.Expect("all four run", 20*time.Minute, func() bool { return len(w.GPUs(Key("a"))) == 4 && w.Running(Key("a")) })
			})
		})
	}
}

// The author runs the file of a running gang again, and its nodes no longer meet the constraints.
// The gang moves to nodes that do. If there are none, it keeps running, and explain says why.
func TestForbiddenWhereItRuns(t *testing.T) {
	for name, forbid := range map[string]func(job *api.Job, node *api.Node){
		"constraint": func(job *api.Job, n *api.Node) {
			job.Constraints = append(job.Constraints, api.NewConstraint("${node.unique.name}", "!=", n.Name))
		},
		"constraint of the device": func(job *api.Job, n *api.Node) {
			d := job.TaskGroups[0].Tasks[0].Resources.Devices[0]
			d.Constraints = append(d.Constraints, api.NewConstraint("${device.model}", "=", "none"))
		},
		"datacenter": func(job *api.Job, _ *api.Node) { job.Datacenters = []string{"elsewhere"} },
		"device": func(job *api.Job, _ *api.Node) {
			job.TaskGroups[0].Tasks[0].Resources.Devices[0].Name = "nvidia/gpu/none"
		},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(2, 2)
				w.StartPlacer()
				w.Submit(Gang{Name: "a", Members: 2, GPUs: 1, Runs: time.Hour})
				w.ExpectRunning("a", 10*time.Second)
				was := w.Members(Key("a"))
				node, _, err := w.Author.Nodes().Info(was[0].Node, nil)
				if err == nil {
					err = w.Edit(Key("a"), func(job *api.Job) { forbid(job, node) })
				}
				if err != nil {
					w.T.Fatal(err)
				}
				if name == "constraint" {
					w.Expect("it runs on the other node", time.Minute, func() bool {
						is := w.Members(Key("a"))
						return len(is) == 2 && is[0].Node != was[0].Node && is[1].Node != was[0].Node && w.Running(Key("a"))
					})
					return
				}
				w.RunFor(time.Minute)
				if is := w.Members(Key("a")); len(is) != 2 || is[0].ID != was[0].ID || is[1].ID != was[1].ID {
					w.T.Errorf("it does not keep running:\n%s", w.Describe())
				}
				if e := w.explained("a"); e.Reason.Kind != reason.RunsOnAsBefore {
					w.T.Errorf("explain shows it as %s: %s", e.State, e.Reason.String())
				}
			})
		})
	}
}

// A gang is changed after one of its members has finished. No member starts on a GPU that another
// still uses (walk 584).
func TestChangedAfterAMemberFinished(t *testing.T) {
	for seed := range uint64(8) {
		Run(t, Options{Seed: seed, Nomad: nomadtest.Options{Kill: 10 * time.Second}}, func(w *World) {
			w.AddNodes(1, 2)
			w.Nomad.Observe(nomadtest.Observer{Shared: func(gpu string, a, b nomadtest.Member) {
				t.Errorf("seed %d: %s[%d] starts on GPU %s, which still runs %s[%d]", seed, b.Job, b.Number, gpu, a.Job, a.Number)
			}})
			w.StartPlacer()
			w.Submit(Gang{Name: "a", Members: 2, Runs: time.Minute, Exit: 1, OneExit: true, Restarts: 1})
			w.ExpectRunning("a", 10*time.Second)
			w.Expect("one member has finished", 2*time.Minute, func() bool { return len(w.Members(Key("a"))) == 1 })
			if err := w.Edit(Key("a"), func(job *api.Job) { job.TaskGroups[0].Tasks[0].Env = map[string]string{"A": "b"} }); err != nil {
				t.Fatal(err)
			}
			w.Expect("both run again", time.Minute, func() bool { return len(w.Members(Key("a"))) == 2 && w.Running(Key("a")) })
		})
	}
}

// A member of a gang has finished, and another gang has its GPU. The gang is run again unchanged,
// and does not get that GPU back (walk 10005539).
func TestRunAgainAfterAMemberFinished(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 2)
		w.Nomad.SetPreemption(true)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, Runs: time.Minute, Priority: 90, Exit: 1, OneExit: true, Restarts: 1})
		w.ExpectRunning("a", 10*time.Second)
		w.Expect("one member has finished", 2*time.Minute, func() bool { return len(w.Members(Key("a"))) == 1 })
		w.Submit(Gang{Name: "b", Runs: 5 * time.Minute, Priority: 20})
		w.ExpectRunning("b", 10*time.Second)
		b := w.Members(Key("b"))[0].ID
		if err := w.Rerun(Key("a")); err != nil {
			t.Fatal(err)
		}
		w.RunFor(10 * time.Second)
		if is := w.Members(Key("b")); len(is) != 1 || is[0].ID != b {
			t.Errorf("b was stopped:\n%s", w.Describe())
		}
		if e := w.explained("a"); e.Reason.Kind != reason.RunsOnAsBefore {
			t.Errorf("a is %s: %s", e.State, e.Reason.String())
		}
		w.ExpectFinished("b", 10*time.Minute)
	})
}

// The placer is killed while a gang is being stopped for its new size. The next placer continues.
func TestResizedWhileThePlacerDies(t *testing.T) {
	for after := range 12 {
		Run(t, Options{Seed: 1, Nomad: nomadtest.Options{Kill: 10 * time.Second}}, func(w *World) {
			w.AddNodes(2, 2)
			w.Nomad.Observe(nomadtest.Observer{Shared: func(gpu string, a, b nomadtest.Member) {
				t.Errorf("after %d s: %s[%d] starts on GPU %s, which still runs %s[%d]", after, b.Job, b.Number, gpu, a.Job, a.Number)
			}})
			p := w.StartPlacer()
			w.Submit(Gang{Name: "a", Members: 2, GPUs: 1, Runs: time.Hour})
			w.ExpectRunning("a", 10*time.Second)
			if err := w.Edit(Key("a"), func(job *api.Job) { job.TaskGroups[0].Count = new(4) }); err != nil {
				t.Fatal(err)
			}
			w.RunFor(time.Duration(after) * time.Second)
			p.Kill()
			w.StartPlacer()
			w.Expect("the new size", time.Minute, func() bool { return len(w.Members(Key("a"))) == 4 })
			w.ExpectRunning("a", time.Minute)
		})
	}
}

// A gang becomes larger in the cycle in which another gang starts. Neither gets a GPU of the other.
func TestResizedBesideAStart(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Runs: time.Hour})
		w.Submit(Gang{Name: "before", Runs: 30 * time.Second})
		w.ExpectRunning("a", 10*time.Second)
		w.ExpectRunning("before", 10*time.Second)
		if err := w.Edit(Key("a"), func(job *api.Job) { job.TaskGroups[0].Count = new(2) }); err != nil {
			t.Fatal(err)
		}
		w.Submit(Gang{Name: "b", Runs: time.Hour})
		w.ExpectFinished("before", time.Minute)
		w.RunFor(3 * time.Second)
		given := map[string]string{}
		for _, name := range []string{"a", "b"} {
			pins, _ := rewrite.Pinned(w.Nomad.Job(Key(name)))
			for _, gpu := range pins.GPUs() {
				if given[gpu] != "" {
					t.Errorf("%s is given to %s and to %s", gpu, given[gpu], name)
				}
				given[gpu] = name
			}
		}
	})
}

// A job has finished, is purged, and is submitted again under its name. The first job's results do
// not count for the second, whose node is drained at once.
func TestPurgedAndSubmittedAgain(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 1)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Runs: 10 * time.Second})
		w.ExpectFinished("a", time.Minute)
		if err := w.Purge(Key("a")); err != nil {
			t.Fatal(err)
		}
		w.Submit(Gang{Name: "a", Runs: 10 * time.Minute})
		w.ExpectRunning("a", time.Minute)
		at := w.Members(Key("a"))[0].Node
		w.Nomad.Drain(at)
		w.Expect("it runs on the other node", time.Minute, func() bool {
			ms := w.Members(Key("a"))
			return len(ms) == 1 && ms[0].Node != at && w.Running(Key("a"))
		})
	})
}

// A running gang whose author wants more members waits for them as a new job would: its tenant's
// limit applies, and jobs that already wait go first.
func TestLargerSizeWaitsItsTurn(t *testing.T) {
	grow := func(w *World) {
		if err := w.Edit(Key("a"), func(job *api.Job) { job.TaskGroups[0].Count = new(4) }); err != nil {
			t.Fatal(err)
		}
	}
	keepsItsSize := func(w *World, during time.Duration, why string) {
		for range int(during / time.Second) {
			w.RunFor(time.Second)
			if n := len(w.GPUs(Key("a"))); n != 1 {
				t.Fatalf("it has %d GPUs:\n%s", n, w.Describe())
			}
		}
		if e := w.explained("a"); e.Reason.Kind != reason.RunsOnAsBefore || !strings.Contains(e.Reason.String(), why) {
			t.Errorf("explain shows it as %s: %s", e.State, e.Reason.String())
		}
	}
	tenants := func(c *model.Config) {
		c.Queue.Tenants = map[string]queue.Tenant{"default": {Quota: 3, BorrowingLimit: new(int)}}
	}
	t.Run("limit", func(t *testing.T) {
		Run(t, Options{Seed: 1, Placer: tenants}, func(w *World) {
			w.AddNodes(2, 2)
			w.StartPlacer()
			w.Submit(Gang{Name: "a", Members: 1, GPUs: 1, Runs: time.Hour})
			w.ExpectRunning("a", 10*time.Second)
			grow(w)
			keepsItsSize(w, time.Minute, "the job's tenant may hold at most 3")
		})
	})
	t.Run("limit, and a placer that has just started", func(t *testing.T) { // walk 8300081
		Run(t, Options{Seed: 1, Placer: tenants}, func(w *World) {
			w.AddNodes(2, 3)
			p := w.StartPlacer()
			w.Submit(Gang{Name: "a", Members: 1, GPUs: 1, Runs: time.Hour})
			w.Submit(Gang{Name: "b", Members: 2, GPUs: 1, Runs: time.Hour})
			w.ExpectRunning("a", 10*time.Second)
			w.ExpectRunning("b", 10*time.Second)
			p.Kill()
			if err := w.Edit(Key("a"), func(job *api.Job) { job.TaskGroups[0].Count = new(3) }); err != nil {
				t.Fatal(err)
			}
			w.StartPlacer()
			keepsItsSize(w, time.Minute, "and may hold at most")
		})
	})
	t.Run("queue", func(t *testing.T) {
		Run(t, Options{Seed: 1}, func(w *World) {
			w.AddNodes(2, 2)
			w.StartPlacer()
			w.Submit(Gang{Name: "a", Members: 1, GPUs: 1, Runs: 3 * time.Hour})
			w.Submit(Gang{Name: "b", Members: 2, GPUs: 1, Runs: 10 * time.Minute})
			w.ExpectRunning("a", 10*time.Second)
			w.ExpectRunning("b", 10*time.Second)
			w.Submit(Gang{Name: "c", Members: 3, GPUs: 1, Runs: 30 * time.Minute})
			w.RunFor(time.Second)
			grow(w)
			keepsItsSize(w, 11*time.Minute, "")
			w.ExpectRunning("c", time.Second)
			w.Expect("all four run", time.Hour, func() bool { return len(w.GPUs(Key("a"))) == 4 && w.Running(Key("a")) })
		})
	})
}

// GPU time counts once, however often the author changes a running gang. When a gang leaves the
// queue and is restored, the time that it used before is already counted.
func TestEditsBookNoGPUTimeAgain(t *testing.T) {
	fair := func(c *model.Config) { c.Queue.FairShare, c.Queue.HalfLife = true, 1000*time.Hour }
	Run(t, Options{Seed: 1, Placer: fair}, func(w *World) {
		w.AddNodes(1, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 1, GPUs: 1, Runs: 10 * time.Hour})
		w.ExpectRunning("a", 10*time.Second)
		for range 4 { // it keeps running unchanged, and waits for another member
			w.RunFor(time.Hour)
			if err := w.Edit(Key("a"), func(job *api.Job) { job.TaskGroups[0].Count = new(5 - *job.TaskGroups[0].Count) }); err != nil {
				t.Fatal(err)
			}
		}
		w.RunFor(time.Hour)
		tenants := w.snapshot().Tenants(func(string) bool { return true })
		if len(tenants) != 1 || tenants[0].GPUHours < 4.8 || tenants[0].GPUHours > 5.1 {
			t.Errorf("one GPU for five hours counts as %+v", tenants)
		}
	})
}
