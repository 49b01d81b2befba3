// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

func limitOf(n int) func(*model.Config) {
	return func(c *model.Config) {
		c.Queue.Tenants = map[string]queue.Tenant{"default": {Quota: n, BorrowingLimit: new(int)}}
	}
}

func sized(n int) func(*api.Job) { return func(j *api.Job) { j.TaskGroups[0].Count = new(n) } }

func (w *World) edited(name string, change func(*api.Job)) {
	if err := w.Edit(Key(name), change); err != nil {
		w.T.Fatal(err)
	}
}

func (w *World) atMost(n int, names ...string) {
	w.T.Helper()
	w.RunFor(2 * time.Minute)
	held := 0
	for _, name := range names {
		held += len(w.GPUs(Key(name)))
	}
	if held > n {
		w.T.Errorf("the tenant holds %d, its limit is %d", held, n)
	}
}

// Running gangs are changed by their authors. These are the cases known before the tests that try
// to break the rules.
func TestChangedGangs(t *testing.T) {
	pre := map[string]string{"pal_preempt": "true"}
	a := func(w *World, nodes, gpus int, g Gang) *Placer {
		w.AddNodes(nodes, gpus)
		p := w.StartPlacer()
		g.Name, g.Runs = "a", 50*time.Hour
		w.Submit(g)
		w.ExpectRunning("a", 10*time.Second)
		w.RunFor(time.Minute)
		return p
	}
	for name, c := range map[string]struct {
		limit int
		do    func(w *World)
	}{
		"preemption": {100, func(w *World) {
			a(w, 2, 2, Gang{Members: 4, Priority: 20, Meta: pre})
			w.edited("a", sized(5))
			w.RunFor(20 * time.Minute)
			w.Submit(Gang{Name: "urgent", Members: 2, GPUs: 2, Runs: time.Minute, Priority: 90})
			w.ExpectRunning("urgent", time.Hour)
		}},
		"restart, limit": {4, func(w *World) {
			p := a(w, 8, 1, Gang{Members: 4})
			w.edited("a", sized(5))
			w.RunFor(time.Minute)
			p.Kill()
			w.StartPlacer()
			w.RunFor(time.Minute)
			w.Submit(Gang{Name: "b", Members: 4, Runs: time.Hour})
			w.atMost(4, "a", "b")
		}},
		"bad hint, explain panics": {4, func(w *World) {
			a(w, 8, 1, Gang{Members: 4})
			w.edited("a", func(j *api.Job) { j.Meta = map[string]string{"pal_class": "Q"} })
			w.RunFor(time.Minute)
			defer func() {
				if r := recover(); r != nil {
					w.T.Errorf("explain panics: %v", r)
				}
			}()
			w.explained("a")
		}},
		"bad hint, and more": {100, func(w *World) {
			a(w, 8, 1, Gang{Members: 4})
			was := w.Members(Key("a"))
			w.edited("a", func(j *api.Job) { sized(5)(j); j.Meta = map[string]string{"pal_class": "Q"} })
			w.RunFor(time.Minute)
			if is := w.Members(Key("a")); len(is) != 4 || is[0].ID != was[0].ID {
				w.T.Errorf("it does not keep running:\n%s", w.Describe())
			}
			if e := w.explained("a"); !strings.Contains(e.Reason.String(), `application class "Q" is unknown`) {
				w.T.Errorf("explain shows it as %s: %s", e.State, e.Reason.String())
			}
		}},
		"fewer, and nowhere": {100, func(w *World) {
			a(w, 4, 1, Gang{Members: 4})
			w.edited("a", func(j *api.Job) { sized(3)(j); j.Datacenters = []string{"elsewhere"} })
			w.RunFor(time.Minute)
			if len(w.Members(Key("a"))) == 0 {
				w.T.Error("it does not keep running")
			}
		}},
		"fewer while no placer is active": {100, func(w *World) {
			p := a(w, 4, 1, Gang{Members: 4, Meta: map[string]string{"pal_duration": "50h"}})
			w.Submit(Gang{Name: "b", Members: 4, Runs: time.Hour, Meta: map[string]string{"pal_duration": "1h"}})
			w.RunFor(time.Minute)
			p.Kill()
			w.edited("a", sized(3))
			w.RunFor(20 * time.Second)
			w.StartPlacer()
			w.RunFor(time.Minute)
			if len(w.Members(Key("a"))) != 3 {
				w.T.Error("it was stopped, and b has its GPUs")
			}
		}},
		"edited six times": {100, func(w *World) {
			a(w, 2, 1, Gang{Members: 2})
			for i := range 6 {
				w.edited("a", func(j *api.Job) { sized(3)(j); j.TaskGroups[0].Tasks[0].Env = map[string]string{"A": fmt.Sprint(i)} })
				w.RunFor(10 * time.Second)
			}
			w.edited("a", func(j *api.Job) { sized(2)(j); j.TaskGroups[0].Tasks[0].Env = nil })
			w.RunFor(10 * time.Minute)
			if s := w.explained("a").State; s != "running" {
				w.T.Errorf("it requests what it has, and is %s", s)
			}
		}},
		"two in one cycle, limit": {4, func(w *World) {
			p := a(w, 8, 1, Gang{})
			w.Submit(Gang{Name: "b", Runs: time.Hour})
			w.ExpectRunning("b", 10*time.Second)
			used := []string{w.nodeName(w.Members(Key("a"))[0].Node), w.nodeName(w.Members(Key("b"))[0].Node)}
			p.Kill()
			for _, name := range []string{"a", "b"} {
				w.edited(name, func(j *api.Job) {
					sized(3)(j)
					for _, n := range used {
						j.Constraints = append(j.Constraints, api.NewConstraint("${node.unique.name}", "!=", n))
					}
				})
			}
			w.StartPlacer()
			w.atMost(4, "a", "b")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1, Unchecked: true, Placer: limitOf(c.limit)}, c.do)
		})
	}
}

// A tenant's limit includes running jobs that are not in the queue: one that the placer could not
// read when it started (walk 245), and one that can no longer be served because of its author's
// change.
func TestLimitCountsWhatRuns(t *testing.T) {
	for name, leave := range map[string]func(*World, *Placer){
		"unread": func(w *World, p *Placer) {
			p.Kill()
			w.Nomad.Fail("", "GET /v1/job/a", nomadtest.Failed, -1)
			w.StartPlacer()
		},
		"not to be served": func(w *World, _ *Placer) {
			w.edited("a", func(j *api.Job) { j.Meta = map[string]string{"pal_duration": "long"} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1, Unchecked: true, Placer: limitOf(3)}, func(w *World) {
				w.AddNodes(2, 4)
				p := w.StartPlacer()
				w.Submit(Gang{Name: "a", Members: 2, Runs: 10 * time.Minute})
				w.ExpectRunning("a", 10*time.Second)
				leave(w, p)
				w.Submit(Gang{Name: "b", Members: 2, Runs: time.Minute})
				w.ExpectWaiting("b", 5*time.Minute)
				if name != "unread" {
					if e := w.explained("a"); !strings.Contains(e.Reason.String(), "the old version keeps running; the new version is rejected: meta pal_duration") {
						t.Errorf("explain shows it as %s: %s", e.State, e.Reason.String())
					}
				}
				w.Expect("b has its turn", 10*time.Minute, func() bool { return w.Finished(Key("b")) })
			})
		})
	}
}
