// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// All members of a gang have failed, so Nomad shows its job as dead, and the gang is given up.
// Everything shows that: also an hour later, and also in a placer that starts after that.
func TestGivenUpIsSaidTomorrow(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 2)
		p := w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 1, Runs: 2 * time.Minute, Exit: 1})
		w.Expect("given up", time.Hour, func() bool { return w.explained("a").State == palapi.Failed })
		said := func(when string, p *Placer) {
			t.Helper()
			if e := w.explained("a"); e.State != palapi.Failed || !strings.Contains(e.Reason.String(), "given up after 3 tries") {
				t.Errorf("%s: %s: %s", when, e.State, e.Reason.String())
			}
			for _, j := range p.Status().Jobs {
				if j.Job == "a" && j.State == palapi.Failed && strings.Contains(j.Reason.String(), "given up after 3 tries") {
					return
				}
			}
			t.Errorf("%s: not listed as failed: %+v", when, p.Status().Jobs)
		}
		w.RunFor(time.Hour)
		said("an hour later", p)
		p.Kill()
		p = w.StartPlacer()
		w.RunFor(time.Minute)
		said("to another placer", p)
		w.RunFor(time.Hour)
		said("to another placer an hour later", p)
		w.Submit(Gang{Name: "b", Members: 2, Runs: time.Minute})
		w.ExpectRunning("b", time.Minute)
	})
}

// A gang fails while no placer is active. If that was a while ago, the next placer does not retry
// it, and says what happened.
func TestFailedWhileNoPlacerWasThere(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(1, 2)
		p := w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, Runs: 2 * time.Minute, Exit: 1})
		w.ExpectRunning("a", time.Minute)
		p.Kill()
		w.RunFor(time.Hour)
		p = w.StartPlacer()
		w.RunFor(5 * time.Minute)
		if e := w.explained("a"); e.State != palapi.Failed || !strings.Contains(e.Reason.String(), "no agent") {
			t.Errorf("%s: %s", e.State, e.Reason.String())
		}
		if n := len(p.Status().Jobs); n != 1 {
			t.Errorf("%d jobs are listed", n)
		}
		if err := w.Rerun(Key("a")); err != nil {
			t.Fatal(err)
		}
		w.ExpectRunning("a", time.Minute)
	})
}

// A gang was given up. Its author corrects the job as Nomad's UI shows it, with gate and pins. The
// gang is retried at the end of the queue, and a new placer agrees.
func TestGivenUpThenMendedAsNomadHasIt(t *testing.T) {
	Run(t, Options{Seed: 1, Placer: fifo}, func(w *World) {
		w.AddNodes(1, 2)
		p := w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, Change: func(j *api.Job) {
			runsScript(j.TaskGroups[0], "[ $NOMAD_ALLOC_INDEX = 0 ] && sleep 60 && exit 1; sleep infinity")
		}})
		w.Expect("given up", time.Hour, func() bool { return w.explained("a").State == palapi.Failed })
		w.Submit(Gang{Name: "full", Members: 2, Runs: time.Hour})
		w.ExpectRunning("full", time.Minute)
		w.Submit(Gang{Name: "b", Members: 2, Runs: 10 * time.Minute})
		w.RunFor(30 * time.Minute)
		if as := Carries(w.Nomad.Job(Key("a"))); as != "pinned and gated" {
			t.Fatal(as)
		}
		mended := copyOf(w.Nomad.Job(Key("a")))
		runsScript(mended.TaskGroups[0], "sleep 600; exit 0")
		if err := w.Register(mended); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			w.RunFor(time.Minute)
			if at := w.position("a"); at != 2 {
				e := w.explained("a")
				t.Errorf("its position is %d, want 2: %s: %s", at, e.State, e.Reason.String())
			}
			p.Stop()
			w.placers = nil
			p = w.StartPlacer()
		}
		w.ExpectFinished("a", 8*time.Hour)
	})
}

// A gang was given up, with pins and without a gate. Its author scales it, or changes it as Nomad
// has it. Nomad runs it at once, and it fails before a placer looks. That counts as another try,
// not as the failure that was given up.
func TestGivenUpThenFailsUnseen(t *testing.T) {
	for name, change := range map[string]func(w *World){
		"scaled": func(w *World) { w.scale("a", 1) },
		"edited": func(w *World) {
			job := copyOf(w.Nomad.Job(Key("a")))
			runsScript(job.TaskGroups[0], "sleep 6; exit 1")
			if err := w.Register(job); err != nil {
				w.T.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1, Placer: fifo}, func(w *World) {
				w.AddNodes(1, 2)
				p := w.StartPlacer()
				w.Submit(Gang{Name: "a", Members: 2, Change: func(j *api.Job) { runsScript(j.TaskGroups[0], "sleep 5; exit 1") }})
				w.ExpectRunning("a", 3*time.Second)
				p.Stop()
				w.placers = nil
				w.RunFor(20 * time.Minute)
				p = w.StartPlacer()
				w.Expect("given up", time.Minute, func() bool { return w.explained("a").Reason.Kind == reason.FailedUnseen })
				if as := Carries(w.Nomad.Job(Key("a"))); as != "pinned" {
					w.T.Fatal(as)
				}
				p.Stop()
				w.placers = nil
				w.RunFor(time.Hour)
				change(w)
				w.RunFor(30 * time.Second)
				w.StartPlacer()
				w.ExpectRunning("a", 10*time.Second)
				w.Expect("tried as often as any", 20*time.Minute, func() bool { return strings.HasPrefix(w.explained("a").Reason.String(), "given up after 3 tries") })
			})
		})
	}
}

// The servers' clocks are far behind the agent's. A gang that fails through its own fault is still
// retried, because the placer has just seen it run.
func TestOwnFailureWithClocksApart(t *testing.T) {
	for _, apart := range []time.Duration{-20 * time.Minute, 0, 20 * time.Minute} {
		Run(t, Options{Seed: 1, Placer: fifo}, func(w *World) {
			w.AddNodes(1, 2)
			w.StartPlacer()
			w.Nomad.StepClock(apart)
			w.Submit(Gang{Name: "a", Runs: time.Minute, Exit: 1})
			w.RunFor(30 * time.Minute)
			if e := w.explained("a"); !strings.HasPrefix(e.Reason.String(), "given up after 3 tries") {
				w.T.Errorf("%s apart: %s", apart, e.Reason.String())
			}
		})
	}
}
