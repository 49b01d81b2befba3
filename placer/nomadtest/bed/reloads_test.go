// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/store"
	"github.com/nomad-pal/nomad-pal/placer/window"
)

// reload is SIGHUP with another configuration.
func (w *World) reload(change func(*model.Config)) *Placer {
	w.placers[len(w.placers)-1].Stop()
	w.opts.Placer = change
	return w.StartPlacer()
}

// placerRights returns the rights of a placer's token in some namespaces.
func placerRights(namespaces ...string) nomadtest.Token {
	t := nomadtest.Token{Nodes: true, Namespaces: map[string][]string{}}
	for _, ns := range namespaces {
		t.Namespaces[ns] = []string{"list-jobs", "read-job", "submit-job", "alloc-lifecycle", "variables", "read-variables"}
	}
	return t
}

// A limit is lowered below what runs. A gang that may be moved is not stopped for a move, because
// then it could not start again.
func TestMoveAboveItsLimit(t *testing.T) {
	Run(t, Options{Seed: 1, Placer: func(c *model.Config) { c.Queue.Migrate = false }}, func(w *World) {
		apart(w, nil)
		zero := 0
		w.reload(func(c *model.Config) {
			moving(c)
			c.Queue.Tenants = map[string]queue.Tenant{"default": {Quota: 1, BorrowingLimit: &zero}}
		})
		for range 600 {
			w.RunFor(time.Second)
			if n := len(w.Members(Key("a"))); n == 0 {
				w.RunFor(30 * time.Second)
				if len(w.Members(Key("a"))) == 0 {
					t.Fatalf("stopped:\n%s", w.Describe())
				}
			}
		}
	})
}

// An elastic gang does not grow onto GPUs that an approaching window reserves.
func TestElasticGangAndWindow(t *testing.T) {
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	Run(t, Options{Seed: 1, Placer: func(c *model.Config) {
		c.Windows = []window.Window{{Name: "w", Start: begin.Add(2 * time.Hour), Duration: time.Hour, Nodes: []string{"node-1"}}}
	}}, func(w *World) {
		w.AddNodes(2, 2)
		w.StartPlacer()
		w.Submit(Gang{Name: "other", Members: 2, GPUs: 1, Runs: 10 * time.Minute, Change: on(0), Meta: map[string]string{"pal_duration": "10m"}})
		w.ExpectRunning("other", 10*time.Second)
		w.Submit(stretch("a", 10*time.Hour))
		w.RunFor(2*time.Hour + 10*time.Minute)
		if n := w.nodesOf("a"); slices.Contains(n, "node-1") {
			t.Errorf("on %v", n)
		}
		w.RunFor(2 * time.Hour)
		if n := len(w.Members(Key("a"))); n != 4 {
			t.Errorf("%d members", n)
		}
	})
}

// with returns a token that has only some rights, in all namespaces.
func with(rights ...string) map[string]nomadtest.Token {
	return map[string]nomadtest.Token{"author": {Management: true}, "p": {Nodes: true, Namespaces: map[string][]string{"*": rights}}}
}

var allRights = []string{"list-jobs", "read-job", "submit-job", "alloc-lifecycle", "variables", "read-variables"}

func without(out ...string) []string {
	return slices.DeleteFunc(slices.Clone(allRights), func(r string) bool { return slices.Contains(out, r) })
}

// startWithRights starts a placer whose token has all rights that it needs.
func (w *World) startWithRights() {
	w.T.Helper()
	w.Nomad.SetTokens(with(allRights...))
	author, err := api.NewClient(w.Nomad.Config("author", "author"))
	if err != nil {
		w.T.Fatal(err)
	}
	w.Author = author
	w.StartPlacerAs("p")
}

// A right is taken away for half an hour in the middle of a move or of a preemption, and then given
// back.
func TestRightsLostInTheMiddle(t *testing.T) {
	for _, right := range allRights {
		lost := func(w *World) {
			w.Nomad.SetTokens(with(without(right)...))
			w.RunFor(30 * time.Minute)
			w.Nomad.SetTokens(with(allRights...))
		}
		t.Run("move "+right, func(t *testing.T) {
			Run(t, Options{Seed: 1, Placer: moving, Partial: 40 * time.Minute}, func(w *World) {
				apart(w, w.startWithRights)
				beginsToMove(w)
				lost(w)
				w.RunFor(10 * time.Minute)
				w.ExpectFinished("a", 2*time.Hour)
			})
		})
		t.Run("preemption "+right, func(t *testing.T) {
			Run(t, Options{Seed: 1, Placer: preempting, Partial: 40 * time.Minute, Nomad: nomadtest.Options{Kill: 20 * time.Second}}, func(w *World) {
				w.AddNodes(2, 2)
				w.startWithRights()
				w.Submit(Gang{Name: "low", Members: 4, Runs: time.Hour, Priority: 20, Meta: map[string]string{"pal_preempt": "true"}})
				w.ExpectRunning("low", 10*time.Second)
				w.RunFor(5 * time.Minute)
				w.Submit(Gang{Name: "high", Members: 2, Runs: time.Minute, Priority: 90})
				w.Expect("it is stopped", 5*time.Minute, func() bool { return Carries(w.Nomad.Job(Key("low"))) == "pinned and gated" })
				lost(w)
				w.ExpectFinished("high", 15*time.Minute)
				w.ExpectFinished("low", 3*time.Hour)
			})
		})
	}
}

// The configuration is reloaded in the middle of a preemption, with some feature switched off or
// on.
func TestReloadedInTheMiddle(t *testing.T) {
	zero := 0
	for name, change := range map[string]func(*model.Config){
		"no preemption": func(c *model.Config) { c.Queue.Preempt = false },
		"fifo":          func(c *model.Config) { c.Queue.Order = queue.FIFO },
		"las":           func(c *model.Config) { c.Queue.Order = "las"; c.Queue.Preempt = true },
		"quota": func(c *model.Config) {
			preempting(c)
			c.Queue.Tenants = map[string]queue.Tenant{"default": {Quota: 2, BorrowingLimit: &zero}}
		},
		"window": func(c *model.Config) {
			preempting(c)
			c.Windows = []window.Window{{Name: "w", Start: time.Now().Add(-time.Minute), Duration: 30 * time.Minute, Nodes: []string{"node-0"}}}
		},
		"other namespace": func(c *model.Config) { preempting(c); c.RackMeta = "zone" },
		"placement":       func(c *model.Config) { preempting(c); c.Placement = "packed" },
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1, Placer: preempting, Nomad: nomadtest.Options{Kill: 20 * time.Second}}, func(w *World) {
				w.AddNodes(2, 2)
				w.StartPlacer()
				w.Submit(Gang{Name: "low", Members: 2, Runs: time.Hour, Priority: 20, Meta: map[string]string{"pal_preempt": "true"}})
				w.Submit(Gang{Name: "low2", Members: 2, Runs: time.Hour, Priority: 20, Change: elastic(1, 2)})
				w.ExpectRunning("low", 10*time.Second)
				w.ExpectRunning("low2", 10*time.Second)
				w.RunFor(5 * time.Minute)
				w.Submit(Gang{Name: "high", Members: 2, Runs: time.Minute, Priority: 90})
				w.Expect("it is stopped", 5*time.Minute, func() bool {
					return Carries(w.Nomad.Job(Key("low"))) == "pinned and gated" || len(w.Members(Key("low2"))) == 1
				})
				w.reload(change)
				w.ExpectFinished("high", 3*time.Hour)
				w.ExpectFinished("low", 3*time.Hour)
				w.ExpectFinished("low2", 5*time.Hour)
			})
		})
	}
}

// By a mistake in its policy, the placer's token loses its rights in one namespace for some
// minutes. A preempted gang in that namespace then has its old place in the queue: before the gangs
// that came later.
func TestRecordsSurviveLostRights(t *testing.T) {
	t.Run("kept", func(t *testing.T) { recordsSurvive(t, false) })
	t.Run("lost and given back", func(t *testing.T) { recordsSurvive(t, true) })
}

func recordsSurvive(t *testing.T, lost bool) {
	Run(t, Options{Seed: 1, Placer: func(c *model.Config) { preempting(c); c.Resync = time.Minute }}, func(w *World) {
		w.AddNodes(1, 2)
		team := func(namespaces ...string) map[string]nomadtest.Token {
			return map[string]nomadtest.Token{"p": placerRights(namespaces...), "author": {Management: true}}
		}
		w.Nomad.SetTokens(team("default", "team"))
		author, err := api.NewClient(w.Nomad.Config("author", "author"))
		if err != nil {
			t.Fatal(err)
		}
		w.Author = author
		w.StartPlacerAs("p")
		k := nomadtest.Key{Namespace: "team", ID: "first"}
		w.Submit(Gang{Name: "first", Namespace: "team", GPUs: 2, Runs: time.Hour, Meta: map[string]string{"pal_preempt": "true"}})
		w.Expect("first runs", time.Minute, func() bool { return w.Running(k) })
		w.RunFor(10 * time.Minute)
		w.Submit(Gang{Name: "second", GPUs: 2, Runs: time.Hour})
		w.RunFor(time.Minute)
		w.Submit(Gang{Name: "urgent", GPUs: 2, Runs: time.Hour, Priority: 90})
		w.ExpectRunning("urgent", 10*time.Minute)
		if lost {
			w.Nomad.SetTokens(team("default"))
		}
		w.RunFor(10 * time.Minute)
		w.Nomad.SetTokens(team("default", "team"))
		w.ExpectFinished("urgent", 2*time.Hour)
		w.Expect("one of them runs", 5*time.Minute, func() bool { return w.Running(k) || w.Running(Key("second")) })
		if !w.Running(k) {
			t.Errorf("it has lost its position:\n%s", w.Describe())
		}
	})
}

// Victims are slow to stop. The gang for which they stop starts, although a window has come closer
// meanwhile.
func TestWindowComesCloserInAPreemption(t *testing.T) {
	for _, order := range []bool{false, true} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			Run(t, Options{Seed: 1, Nomad: nomadtest.Options{Kill: 10 * time.Minute}, Placer: func(c *model.Config) {
				preempting(c)
				c.Windows = []window.Window{{Name: "w", Start: time.Now().Add(75 * time.Minute), Duration: 5 * time.Hour}}
			}}, func(w *World) {
				w.AddNodes(1, 2)
				w.StartPlacer()
				low := Gang{Name: "low", Members: 2, Runs: time.Hour, Priority: 20, Meta: map[string]string{"pal_preempt": "true", "pal_duration": "1h"}}
				if order {
					low.Members, low.Change = 2, elastic(1, 2)
					low.Meta["pal_preempt"] = "false"
				}
				w.Submit(low)
				w.ExpectRunning("low", 10*time.Second)
				w.RunFor(10 * time.Minute)
				w.Submit(Gang{Name: "high", Members: 1, Runs: 55 * time.Minute, Priority: 90, Meta: map[string]string{"pal_duration": "1h"}})
				w.RunFor(30 * time.Minute)
				if !w.Running(Key("high")) && len(w.Members(Key("low"))) < 2 {
					t.Errorf("victims were stopped in vain: %s: %s", w.Describe(), w.explained("high").Reason)
				}
			})
		})
	}
}

// A gang that has just started is not stopped before it has run for twice its restart cost, even if
// the placer restarted meanwhile.
func TestSafeAfterAReload(t *testing.T) {
	for _, reloaded := range []bool{false, true} {
		t.Run(fmt.Sprint("reloaded: ", reloaded), func(t *testing.T) {
			Run(t, Options{Seed: 1, Placer: preempting}, func(w *World) {
				w.AddNodes(1, 2)
				w.StartPlacer()
				w.Submit(Gang{Name: "low", Members: 1, GPUs: 1, Runs: 10 * time.Hour, Change: elastic(1, 2), Priority: 20, Meta: map[string]string{"pal_duration": "10h"}})
				w.Submit(Gang{Name: "x", Members: 1, Runs: 10 * time.Minute, Priority: 30})
				w.ExpectRunning("x", 10*time.Minute)
				w.ExpectFinished("x", 15*time.Minute)
				w.Until(time.Hour, func() bool { return len(w.Members(Key("low"))) == 2 && w.Running(Key("low")) })
				w.RunFor(10 * time.Second)
				if reloaded {
					w.reload(preempting)
				}
				w.Submit(Gang{Name: "high", Runs: time.Minute, Priority: 90})
				w.RunFor(45 * time.Second)
				if n := len(w.Members(Key("low"))); n != 2 {
					t.Errorf("%d members", n)
				}
			})
		})
	}
}

// The forecast for an elastic gang that has grown is the same after a reload.
func TestForecastAfterAReload(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 4)
		p := w.StartPlacer()
		w.Submit(Gang{Name: "other", Members: 3, GPUs: 1, Runs: 5 * time.Hour, Meta: map[string]string{"pal_duration": "5h"}})
		w.ExpectRunning("other", 10*time.Second)
		w.Submit(Gang{Name: "a", Members: 1, GPUs: 1, Runs: 100 * time.Hour, Change: elastic(1, 4), Meta: map[string]string{"pal_duration": "10h"}})
		w.expectMembers("a", 1)
		w.ExpectFinished("other", 6*time.Hour)
		w.expectMembers("a", 4)
		w.RunFor(10 * time.Minute)
		w.Submit(Gang{Name: "b", GPUs: 4, Runs: time.Hour})
		w.RunFor(10 * time.Second)
		expectedStart := func(p *Placer) time.Time {
			for _, j := range p.Status().Jobs {
				if j.Job == "b" {
					return j.StartTo
				}
			}
			return time.Time{}
		}
		was := expectedStart(p)
		p = w.reload(nil)
		w.RunFor(20 * time.Second)
		if is := expectedStart(p); is.Sub(was).Abs() > 30*time.Minute {
			t.Errorf("b is expected to start by %s; before the reload, by %s", is, was)
		}
	})
}

// After a reload, a gang is not at once moved again if it has just been moved, or has lost and
// regained a member. A gang that has attained much GPU time under the order las keeps that.
func TestAttainedAfterAReload(t *testing.T) {
	las := func(c *model.Config) {
		c.Queue.Order, c.Queue.Preempt = "las", true
		c.Queue.Quantum = time.Hour
	}
	for _, reloaded := range []bool{false, true} {
		t.Run(fmt.Sprint("reloaded: ", reloaded), func(t *testing.T) {
			Run(t, Options{Seed: 1, Placer: las}, func(w *World) {
				w.AddNodes(1, 4)
				w.StartPlacer()
				w.Submit(Gang{Name: "a", Members: 4, Runs: 100 * time.Hour, Meta: map[string]string{"pal_preempt": "true"}})
				w.ExpectRunning("a", 10*time.Second)
				w.RunFor(5 * time.Hour)
				w.scale("a", 2)
				w.RunFor(10 * time.Minute)
				if reloaded {
					w.reload(las)
				}
				w.RunFor(time.Minute)
				w.Submit(Gang{Name: "b", Members: 4, Runs: 30 * time.Minute})
				w.ExpectRunning("b", 5*time.Minute)
			})
		})
	}
}

// The work that an elastic gang has done depends on how many members it had at each time, even if
// it is stopped.
func TestWorkDoneBeforeItGrew(t *testing.T) {
	Run(t, Options{Seed: 1, Placer: preempting}, func(w *World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		w.Submit(Gang{Name: "other", Members: 3, GPUs: 1, Runs: 4 * time.Hour, Meta: map[string]string{"pal_duration": "4h"}})
		w.ExpectRunning("other", 10*time.Second)
		w.Submit(Gang{Name: "a", Members: 1, GPUs: 1, Runs: 100 * time.Hour, Change: elastic(1, 4), Meta: map[string]string{"pal_duration": "10h", "pal_preempt": "true"}})
		w.expectMembers("a", 1)
		w.ExpectFinished("other", 6*time.Hour)
		w.expectMembers("a", 4)
		w.RunFor(10 * time.Minute)
		w.Submit(Gang{Name: "urgent", GPUs: 4, Runs: time.Hour, Priority: 90})
		w.ExpectRunning("urgent", 10*time.Minute)
		w.RunFor(time.Minute)
		r, err := store.In(w.client()).Record(context.Background(), cluster.JobKey{Namespace: "default", ID: "a"})
		if err != nil || r == nil {
			t.Fatal(r, err)
		}
		// 4 h with one of four members, and 10 min with all.
		if r.Done > 90*time.Minute {
			t.Errorf("according to its record, it has done %v of its 10h (it ran for %v)", r.Done, r.Attained)
		}
	})
}

// The device plugin of a node restarts, so the node lists no GPU for half a minute. Jobs on that node
// keep running, also if the agent is reloaded meanwhile, and if another gang waits.
func TestAPluginRestarts(t *testing.T) {
	for name, g := range map[string]Gang{
		"elastic":     {Name: "a", Members: 2, GPUs: 1, Runs: 10 * time.Hour, Change: elastic(1, 4), Meta: map[string]string{"pal_duration": "10h", "pal_preempt": "true"}},
		"movable":     {Name: "a", Members: 4, GPUs: 1, Runs: 10 * time.Hour, Meta: map[string]string{"pal_duration": "10h", "pal_migrate": "true"}},
		"service":     {Name: "a", Members: 4, GPUs: 1, Service: true},
		"preemptible": {Name: "a", Members: 4, GPUs: 1, Runs: 10 * time.Hour, Meta: map[string]string{"pal_preempt": "true"}},
	} {
		for _, how := range []string{"", "reloaded", "reloaded, and a gang waits"} {
			t.Run(name+" "+how, func(t *testing.T) {
				both := func(c *model.Config) { preempting(c); moving(c) }
				Run(t, Options{Seed: 1, Placer: both}, func(w *World) {
					w.AddNodes(2, 2)
					w.StartPlacer()
					w.Submit(g)
					was := w.expectMembers("a", 4)
					w.RunFor(10 * time.Minute)
					w.AddNodes(1, 2)
					if strings.Contains(how, "waits") {
						w.Submit(Gang{Name: "b", Members: 4, Runs: time.Minute, Priority: 40})
					}
					w.Nomad.TakeAway("GPU-0-0", "GPU-0-1")
					w.RunFor(2 * time.Second)
					if how == "" {
						w.RunFor(30 * time.Second)
					} else {
						w.reload(both)
						w.RunFor(4 * time.Minute)
					}
					w.Nomad.AddNode(nomadtest.GPUNode(0, 2))
					w.RunFor(5 * time.Minute)
					if is := ids(w.Members(Key("a"))); !slices.Equal(was, is) {
						t.Errorf("was %v, is %v\n%s", was, is, w.Describe())
					}
				})
			})
		}
	}
}

// While the agent is away for two minutes, many gangs fail, for example because of a broken image.
// Each is retried when the agent is back.
func TestManyFailWhileTheAgentIsAway(t *testing.T) {
	for _, gangs := range []int{40, 150} {
		t.Run(fmt.Sprint(gangs), func(t *testing.T) {
			Run(t, Options{Seed: 1, Unchecked: true}, func(w *World) {
				w.AddNodes(20, 8)
				p := w.StartPlacer()
				for n := range gangs {
					w.Submit(Gang{Name: fmt.Sprint("g-", n), Runs: 20 * time.Minute, Exit: 1})
				}
				w.RunFor(19 * time.Minute)
				version := map[string]uint64{}
				for n := range gangs {
					version[fmt.Sprint("g-", n)] = *w.Nomad.Job(Key(fmt.Sprint("g-", n))).Version
				}
				p.Stop()
				w.RunFor(2 * time.Minute)
				w.StartPlacer()
				w.RunFor(10 * time.Minute)
				var not []string
				for name, was := range version {
					if *w.Nomad.Job(Key(name)).Version == was {
						not = append(not, name)
					}
				}
				if len(not) > 0 {
					e := w.explained(not[0])
					t.Errorf("%d of %d were not retried; %s is shown as %s: %s", len(not), gangs, not[0], e.State, e.Reason.String())
				}
			})
		})
	}
}
