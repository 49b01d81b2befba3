// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"slices"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// killAtStart kills the placer as it has registered the job's pins: before it records why.
func (w *World) killAtStart(p *Placer, name string) {
	w.T.Helper()
	pinned := func() bool {
		_, pinned := rewrite.Pinned(w.Nomad.Job(Key(name)))
		return pinned && !rewrite.Gated(w.Nomad.Job(Key(name)))
	}
	if !w.until(time.Minute, 10*time.Millisecond, pinned) {
		w.T.Fatalf("%s does not start:\n%s", name, w.Describe())
	}
	p.Kill()
}

func chosen(r gang.Record) (ids []string) {
	if r.Decision.Chosen == nil {
		return nil
	}
	for _, m := range r.Decision.Chosen.Members {
		for _, u := range m.GPUs {
			ids = append(ids, u.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// A placer dies after it has started a gang, before it has recorded that. The next one reads from Nomad
// what the gang has, and since when it waited.
func TestKilledBeforeItRecordedAStart(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 2)
		first := w.StartPlacer()
		w.Submit(Gang{Name: "full", Members: 1, GPUs: 2, Runs: time.Hour})
		w.ExpectRunning("full", 5*time.Second)
		submitted := time.Now()
		w.Submit(Gang{Name: "a", Members: 1, GPUs: 2, Runs: time.Hour})
		w.RunFor(10 * time.Minute)
		if err := w.Stop(Key("full")); err != nil {
			t.Fatal(err)
		}
		w.killAtStart(first, "a")
		w.StartPlacer()
		w.RunFor(time.Minute)
		r := w.decision("a")
		if !slices.Equal(chosen(r), w.GPUs(Key("a"))) {
			t.Errorf("recorded are %v, it has %v", chosen(r), w.GPUs(Key("a")))
		}
		if d := r.Submitted.Sub(submitted); d < 0 || d > 5*time.Second {
			t.Errorf("it was submitted %v after it was", d)
		}
		if r.Waited < 10*time.Minute || r.Waited > 11*time.Minute {
			t.Errorf("it waited %v", r.Waited)
		}
	})
}

// A placer dies between writing down that a gang failed by its own fault and stopping what is left of it.
// The next one counts that failure once.
func TestKilledAsItCountedAFailure(t *testing.T) {
	Run(t, Options{Seed: 1, Unchecked: true, Placer: func(c *model.Config) { c.Retries = 2 }}, func(w *World) {
		w.AddNodes(2, 2)
		first := w.StartPlacer()
		w.RunFor(time.Second)
		w.Submit(Gang{Name: "a", Members: 2, GPUs: 1, Runs: 2 * time.Minute, Exit: 1, OneExit: true})
		w.ExpectRunning("a", 10*time.Second)
		w.Nomad.Fail("placer-1", "PUT /v1/jobs", nomadtest.Lost, -1) // what is left is not stopped
		if !w.until(time.Hour, time.Second, func() bool { return w.decision("a").UserFailures == 1 }) {
			t.Fatalf("its failure is not counted:\n%s", w.Describe())
		}
		first.Kill()
		w.StartPlacer()
		w.RunFor(30 * time.Second)
		if n := w.decision("a").UserFailures; n != 1 {
			t.Errorf("%d failures of one", n)
		}
	})
}
