// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// on restricts a job to the n-th node.
func on(n int) func(*api.Job) {
	return func(j *api.Job) {
		j.Constraints = append(j.Constraints, &api.Constraint{LTarget: "${node.unique.name}", Operand: "=", RTarget: fmt.Sprint("node-", n)})
	}
}

// apart starts a gang that runs on two nodes, because half of each was busy. It would run better on
// one node once a half is free. start starts the placer; nil: StartPlacer.
func apart(w *World, start func()) {
	w.AddNodes(2, 2)
	if start == nil {
		w.StartPlacer()
	} else {
		start()
	}
	for n := range 2 {
		w.Submit(Gang{Name: fmt.Sprint("busy-", n), GPUs: 1, Runs: time.Duration(1+60*n) * time.Minute, Meta: map[string]string{"pal_duration": "10h"}, Change: on(n)})
		w.ExpectRunning(fmt.Sprint("busy-", n), 5*time.Second)
	}
	w.Submit(Gang{Name: "a", Members: 2, GPUs: 1, Runs: 30 * time.Minute, Meta: map[string]string{"pal_migrate": "true", "pal_duration": "30m"}})
	w.ExpectRunning("a", 10*time.Second)
	if got := w.nodesOf("a"); len(got) != 2 {
		w.T.Fatalf("it runs on %v", got)
	}
	w.ExpectFinished("busy-0", 2*time.Minute)
}

// nodesOf returns the nodes of a job's members.
func (w *World) nodesOf(name string) []string {
	var out []string
	for _, m := range w.Members(Key(name)) {
		out = append(out, w.nodeName(m.Node))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func moving(c *model.Config) { c.Queue.Migrate = true }

// A gang that runs apart is moved to one node when there is room, and only once.
func TestMovesAGang(t *testing.T) {
	Run(t, Options{Seed: 1, Placer: moving}, func(w *World) {
		apart(w, nil)
		w.Expect("it runs on one node", 4*time.Minute, func() bool { return w.Running(Key("a")) && len(w.nodesOf("a")) == 1 })
		version := *w.Nomad.Job(Key("a")).Version
		w.RunFor(10 * time.Minute)
		if now := *w.Nomad.Job(Key("a")).Version; now != version {
			t.Errorf("it was moved again: version %d, was %d", now, version)
		}
		w.ExpectFinished("a", time.Hour)
	})
}

// If something fails while a gang is moved, the gang loses at most its move.
func TestMovesThatGoWrong(t *testing.T) {
	for name, wrong := range map[string]func(w *World){
		"its registration is refused": func(w *World) { w.Nomad.Fail("", "PUT /v1/jobs", nomadtest.Failed, 2) },
		"no answer":                   func(w *World) { w.Nomad.Fail("", "PUT /v1/jobs", nomadtest.Unanswered, 1) },
		"its members do not stop":     func(w *World) { w.Nomad.Fail("", "PUT /v1/allocation/*/stop", nomadtest.Failed, 3) },
		"the placer is killed": func(w *World) {
			beginsToMove(w)
			w.placers[0].Kill()
			w.StartPlacer()
		},
		"the new node is lost": func(w *World) {
			beginsToMove(w)
			w.Nomad.CrashNode(NodeID(0))
			w.Excuse()
			w.RunFor(20 * time.Second)
			w.Nomad.RecoverNode(NodeID(0))
		},
		"a GPU of the new node becomes unhealthy": func(w *World) {
			beginsToMove(w)
			w.Nomad.SetHealth(false, "GPU-0-0", "GPU-0-1")
		},
		"its author stops it": func(w *World) {
			beginsToMove(w)
			if err := w.Stop(Key("a")); err != nil {
				w.T.Error(err)
			}
			if err := w.Rerun(Key("a")); err != nil {
				w.T.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1, Placer: moving}, func(w *World) {
				apart(w, nil)
				wrong(w)
				w.RunFor(5 * time.Minute)
				w.ExpectFinished("a", 2*time.Hour)
			})
		})
	}
}

// beginsToMove waits until the placer stops the gang to move it.
func beginsToMove(w *World) {
	w.T.Helper()
	w.Expect("it is moved", 5*time.Minute, func() bool { return Carries(w.Nomad.Job(Key("a"))) == "pinned and gated" })
}

// snapshot returns the active placer's snapshot, as commands use it.
func (w *World) snapshot() *query.Snapshot {
	w.T.Helper()
	s := w.Picture()
	if s == nil {
		w.T.Fatal("no placer is active")
	}
	return s
}

func (w *World) client() *nomad.Client {
	w.T.Helper()
	c, err := nomad.NewClient(w.Nomad.Config("author", ""), "default")
	if err != nil {
		w.T.Fatal(err)
	}
	return c
}

// explained returns explain's answer about a job.
func (w *World) explained(name string) *palapi.Explanation {
	w.T.Helper()
	e, err := w.snapshot().Explain(context.Background(), Key(name))
	if err != nil {
		w.T.Fatal(err)
	}
	return e
}

func (w *World) update(name string) {
	w.T.Helper()
	if err := w.Edit(Key(name), func(j *api.Job) { j.TaskGroups[0].Tasks[0].Env = map[string]string{"VERSION": "2"} }); err != nil {
		w.T.Fatal(err)
	}
}
