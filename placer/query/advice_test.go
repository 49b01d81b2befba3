// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// planned returns the plan of a gang.
func planned(w *bed.World, g bed.Gang) *palapi.Explanation {
	job := g.Job()
	cluster.Canonicalize(job)
	e, err := snapshot(w).Plan(w.T.Context(), job)
	if err != nil {
		w.T.Fatal(err)
	}
	return e
}

// Orders about a job also apply to its next version, so plan reports that a held job would wait.
func TestPlanOfHeld(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(1, 4)
		p := w.StartPlacer()
		if _, err := p.Control(w.T.Context(), bed.Key("held"), func(of *gang.Control) { of.Held = &gang.Said{By: "ada", At: time.Now()} }); err != nil {
			w.T.Fatal(err)
		}
		g := bed.Gang{Name: "held", Runs: time.Hour}
		for _, when := range []string{"not registered", "waiting"} {
			w.RunFor(5 * time.Second)
			if e := planned(w, g); e.State != palapi.Waiting || e.Reason.Kind != reason.Held || e.Hold.IsZero() {
				w.T.Errorf("%s: %s: %s", when, e.State, e.Reason.String())
			}
			w.Submit(g)
		}
	})
}

// A new version of a waiting job keeps the job's place in the queue and the priority that somebody
// has set. A version that requests more GPUs goes behind the jobs that were submitted before.
func TestPlanKeepsPlace(t *testing.T) {
	for name, c := range map[string]struct {
		order    queue.Order
		priority int
		members  int
		position int
	}{
		"as it is":    {queue.FIFO, 0, 2, 1},
		"fewer":       {queue.FIFO, 0, 1, 1},
		"more":        {queue.FIFO, 0, 3, 2},
		"by priority": {queue.FIFO, 20, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bed.Run(t, bed.Options{Seed: 1, Placer: func(o *model.Config) { o.Queue.Order = c.order }}, func(w *bed.World) {
				w.AddNodes(3, 4)
				p := w.StartPlacer()
				w.Submit(bed.Gang{Name: "runs", Members: 3, GPUs: 4, Runs: time.Hour})
				w.ExpectRunning("runs", 10*time.Second)
				g := bed.Gang{Name: "first", Members: 2, GPUs: 4}
				w.Submit(g)
				w.RunFor(5 * time.Second)
				w.Submit(bed.Gang{Name: "second", Members: 2, GPUs: 4})
				if _, err := p.Control(w.T.Context(), bed.Key("first"), func(of *gang.Control) { of.Priority = c.priority }); err != nil {
					w.T.Fatal(err)
				}
				w.RunFor(5 * time.Second)
				g.Members = c.members
				if e := planned(w, g); e.Wait == nil || e.Wait.Position != c.position {
					w.T.Errorf("planned %+v, want position %d", e.Wait, c.position)
				}
				w.Submit(g)
				w.RunFor(5 * time.Second)
				if e := explained(w, "first"); e.Wait == nil || e.Wait.Position != c.position {
					w.T.Errorf("submitted %+v, want position %d", e.Wait, c.position)
				}
			})
		})
	}
}

// While a job waits for the jobs in its pal_after, no change lets it start. Once these jobs have
// finished, plan no longer mentions them.
func TestNoAdviceBeforeOthers(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(2, 4)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "runs", GPUs: 2, Runs: time.Minute})
		w.ExpectRunning("runs", 10*time.Second)
		w.Submit(bed.Gang{Name: "stays", GPUs: 2, Runs: time.Hour})
		w.ExpectRunning("stays", 10*time.Second)
		g := bed.Gang{Name: "waits", Members: 2, GPUs: 4, Meta: map[string]string{"pal_after": "runs"}}
		if e := planned(w, g); e.State != palapi.Waiting || len(e.Remedies) > 0 || e.Ask+e.Try != "" {
			w.T.Errorf("%s, %q, ask %q, try %q", e.State, sentences(e.Remedies), e.Ask, e.Try)
		}
		w.Submit(g)
		w.ExpectFinished("runs", 2*time.Minute)
		if g.Members = 1; len(explained(w, "waits").Remedies) != 1 || planned(w, g).Reason.String() != "would start now" {
			w.T.Errorf("after the other job has finished: %q, %q", sentences(explained(w, "waits").Remedies), planned(w, g).Reason.String())
		}
	})
}

// A job is stopped, and planned again while a stopped member still runs. Plan reports what the new
// version would wait for.
func TestPlanWhileMembersEnd(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Nomad: nomadtest.Options{Kill: time.Minute}}, func(w *bed.World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		g := bed.Gang{Name: "ends", GPUs: 4, Runs: time.Hour, Change: func(j *api.Job) { j.TaskGroups[0].Tasks[0].KillTimeout = new(time.Hour) }}
		w.Submit(g)
		w.ExpectRunning("ends", 10*time.Second)
		if err := w.Stop(bed.Key("ends")); err != nil {
			w.T.Fatal(err)
		}
		w.RunFor(10 * time.Second)
		if e := planned(w, g); e.Reason.IsZero() {
			w.T.Errorf("it would be %s for no reason", e.State)
		}
	})
}
