// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// submitChild makes the servers create a child whose template no longer exists.
func (w *World) submitChild(g Gang) {
	w.T.Helper()
	job := g.Job()
	w.rules.submits(copyOf(job))
	if _, _, err := w.Author.Jobs().Register(job, overRPC(w.T.Context(), job)); err != nil {
		w.T.Fatal(err)
	}
}

func child(template string, n int, g Gang) Gang {
	g.Name = fmt.Sprintf("%s/dispatch-%d", template, n)
	g.Change = func(j *api.Job) { j.ParentID, j.Dispatched = &template, true }
	return g
}

// At most two children of an array run at a time, even if one is stopped, one fails, and the placer
// restarts.
func TestArray(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 8)
		w.StartPlacerOfChildren()
		names := []string{}
		for n := range 8 {
			g := child("sweep", n, Gang{Members: 1, Runs: 10 * time.Minute, Meta: map[string]string{"pal_array_parallel": "2"}})
			if n == 3 {
				g.Exit = 1
			}
			names = append(names, g.Name)
			w.submitChild(g)
		}
		most := 0
		look := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); w.RunFor(time.Second) {
				n := 0
				for _, name := range names {
					n += len(w.GPUs(Key(name)))
				}
				most = max(most, n)
			}
		}
		look(5 * time.Minute)
		if err := w.Stop(Key(names[0])); err != nil {
			t.Fatal(err)
		}
		look(2 * time.Minute)
		w.placers[0].Kill()
		w.StartPlacerOfChildren()
		look(100 * time.Minute)
		if most != 2 {
			t.Errorf("%d ran at a time", most)
		}
		for i, name := range names {
			if i != 0 && i != 3 { // 0 was stopped, 3 fails
				w.ExpectFinished(name, 0)
			}
		}
	})
}

// A child waits for another child of its template, and for one that is dispatched later.
func TestChildAfterChild(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 8)
		w.StartPlacerOfChildren()
		w.submitChild(child("sweep", 0, Gang{Members: 1, Runs: 10 * time.Minute}))
		w.submitChild(child("sweep", 1, Gang{Members: 1, Runs: 10 * time.Minute, Meta: map[string]string{"pal_after": "sweep/dispatch-0, sweep/dispatch-2"}}))
		w.RunFor(15 * time.Minute)
		w.submitChild(child("sweep", 2, Gang{Members: 1, Runs: 10 * time.Minute}))
		w.ExpectFinished("sweep/dispatch-1", 25*time.Minute)
	})
}

// A sysbatch job can finish, too, and other jobs may wait for it: it may download data for them.
func TestAfterSysbatch(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		w.Submit(Gang{Name: "prefetch", Ungated: true, Runs: time.Minute, Change: func(j *api.Job) {
			j.Type = new("sysbatch")
			j.TaskGroups[0].Tasks[0].Resources.Devices = nil
		}})
		w.Submit(Gang{Name: "a", Runs: time.Minute, Meta: map[string]string{"pal_after": "prefetch"}})
		w.RunFor(30 * time.Second)
		if e := w.explained("a"); strings.Contains(e.Reason.String(), "which never finishes") {
			w.T.Errorf("%s: %s", e.State, e.Reason.String())
		}
	})
}
