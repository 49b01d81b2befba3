// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
	"github.com/nomad-pal/nomad-pal/placer/window"
)

// Gangs that might still run when a window opens do not start on its nodes. After the window they
// start by themselves, and jobs with a reservation start in it. Explain shows the window, its times
// and its reason.
func TestWindows(t *testing.T) {
	var began time.Time
	bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) {
		began = time.Now().Truncate(time.Minute)
		c.Windows = []window.Window{
			{Name: "kernel", Start: began.Add(2 * time.Hour), Duration: time.Hour, Nodes: []string{"*-0"}},
			{Name: "paper", Start: began, Duration: 4 * time.Hour, Nodes: []string{"*-1"}, For: []string{"vision/train-*"}},
			{Name: "typo", Start: began, Duration: time.Hour, Nodes: []string{"gpu-99"}},
		}
	}}, func(w *bed.World) {
		w.AddNodes(2, 4)
		w.StartPlacer()
		gang := func(namespace, name, runs string) nomadtest.Key {
			w.Submit(bed.Gang{Name: name, Namespace: namespace, GPUs: 4, Runs: time.Hour, Meta: map[string]string{"pal_duration": runs}})
			return nomadtest.Key{Namespace: namespace, ID: name}
		}
		long := gang("vision", "long", "3h")
		w.RunFor(10 * time.Second)
		e, err := snapshot(w).Explain(w.T.Context(), cluster.JobKey{Namespace: "vision", ID: "long"})
		if err != nil {
			w.T.Fatal(err)
		}
		clock := func(after time.Duration) string { return began.Add(after).UTC().Format("2006-01-02 15:04 MST") }
		for _, want := range []string{
			fmt.Sprintf("window kernel keeps 4 GPUs from %s to %s, because the job might run then", clock(2*time.Hour), clock(3*time.Hour)),
			fmt.Sprintf("window paper keeps 4 GPUs from %s to %s, because", clock(0), clock(4*time.Hour)),
		} {
			if !strings.Contains(e.Note, want) {
				w.T.Errorf("note %q lacks %q", e.Note, want)
			}
		}
		if strings.Contains(e.Note, "typo") {
			w.T.Errorf("the note names a window without GPUs: %q", e.Note)
		}
		if want := "the window lasts from " + clock(2*time.Hour) + " to " + clock(3*time.Hour); !strings.Contains(e.WaitsFor.String(), want) || e.Wait == nil || e.Wait.Position != 1 {
			w.T.Errorf("it waits for %q, want %q", e.WaitsFor.String(), want)
		}
		if got := strings.Join(snapshot(w).Warnings(), "; "); !strings.Contains(got, `window "typo" covers no GPU`) {
			w.T.Errorf("warnings %q", got)
		}
		short, reserved := gang("vision", "short", "90m"), gang("vision", "train-1", "3h")
		w.RunFor(10 * time.Second)
		if !w.Running(short) || !w.Running(reserved) || len(w.GPUs(long)) > 0 {
			w.T.Errorf("beside the windows: short %v, reserved %v, long %v", w.GPUs(short), w.GPUs(reserved), w.GPUs(long))
		}
		w.RunFor(time.Until(began.Add(3*time.Hour - 10*time.Second)))
		if len(w.GPUs(long)) > 0 {
			w.T.Error("it runs into a window")
		}
		w.RunFor(20 * time.Second)
		if !w.Running(long) {
			w.T.Errorf("it does not run when the window is over: %s", note(w, cluster.JobKey{Namespace: "vision", ID: "long"}))
		}
	})
}

// A job that can never start is not told about windows.
func TestWindowsOfJobThatNeverStarts(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) {
		c.Windows = []window.Window{{Name: "kernel", Start: time.Now().Add(time.Hour), Duration: time.Hour, Nodes: []string{"*-0"}}}
	}}, func(w *bed.World) {
		w.AddNodes(2, 4)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "huge", Namespace: "vision", GPUs: 9, Meta: map[string]string{"pal_duration": "3h"}})
		w.RunFor(10 * time.Second)
		e, err := snapshot(w).Explain(w.T.Context(), cluster.JobKey{Namespace: "vision", ID: "huge"})
		if err != nil {
			w.T.Fatal(err)
		}
		if e.State != palapi.Unschedulable || strings.Contains(e.Note, "window") {
			w.T.Errorf("%s, with the note %q", e.State, e.Note)
		}
	})
}

// The end of a job that runs on a window's GPUs makes no room for a gang that cannot use these GPUs,
// and neither do the window's free GPUs.
func TestHoldersBesideWindow(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) {
		c.Windows = []window.Window{{Name: "kernel", Start: time.Now().Add(time.Hour), Duration: time.Hour, Nodes: []string{"*-0", "*-1"}}}
	}}, func(w *bed.World) {
		w.AddNodes(3, 4)
		w.StartPlacer()
		for name, run := range map[string]string{"in-window": "20m", "beside": "2h"} {
			node := map[string]string{"in-window": "node-0", "beside": "node-2"}[name]
			w.Submit(bed.Gang{Name: name, GPUs: 4, Runs: 2 * time.Hour, Meta: map[string]string{"pal_duration": run}, Change: func(j *api.Job) {
				j.Constraints = append(j.Constraints, &api.Constraint{LTarget: "${node.unique.name}", Operand: "=", RTarget: node})
			}})
			w.ExpectRunning(name, 10*time.Second)
		}
		w.Submit(bed.Gang{Name: "long", GPUs: 4, Runs: time.Hour, Meta: map[string]string{"pal_duration": "3h"}})
		w.RunFor(10 * time.Second)
		e, err := snapshot(w).Explain(w.T.Context(), cluster.JobKey{Namespace: "default", ID: "long"})
		if err != nil || e.Holders == nil {
			w.T.Fatal(e, err)
		}
		if h := e.Holders; len(h.Jobs) != 1 || h.Jobs[0].Job != "default/beside" || !h.Jobs[0].Needed || !h.Enough {
			w.T.Errorf("holders: %+v", h)
		}
		if want := "4 are free, but the window \"kernel\" reserves 4 GPUs"; !strings.Contains(e.WaitsFor.String(), want) {
			w.T.Errorf("%q lacks %q", e.WaitsFor, want)
		}
	})
}

// A service does not end by itself, so it starts only on GPUs that no window reserves soon.
func TestServiceBesideWindows(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) {
		from := time.Now().Truncate(time.Minute).Add(2 * time.Hour)
		c.Windows = []window.Window{{Name: "kernel", Start: from, Duration: time.Hour, Nodes: []string{"*-0"}}}
	}}, func(w *bed.World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		w.RunFor(time.Hour)
		w.Submit(bed.Gang{Name: "late", GPUs: 2, Service: true})
		w.RunFor(10 * time.Second)
		e := explained(w, "late")
		if want := "window kernel keeps 4 GPUs from "; !strings.Contains(e.Note, want) {
			w.T.Errorf("it waits: %q, want %q", e.Note, want)
		}
	})
}

// A job that waits for GPUs of two overlapping windows names both.
func TestOverlappingWindows(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) {
		began := time.Now().Truncate(time.Minute)
		c.Windows = []window.Window{
			{Name: "long", Start: began, Duration: 2 * time.Hour, Nodes: []string{"*-0"}},
			{Name: "short", Start: began, Duration: time.Hour, Nodes: []string{"*-0", "*-1"}},
		}
	}}, func(w *bed.World) {
		w.AddNodes(3, 4)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "on", GPUs: 1, Runs: time.Hour})
		w.ExpectRunning("on", 10*time.Second)
		w.Submit(bed.Gang{Name: "a", GPUs: 4, Runs: time.Hour})
		w.RunFor(10 * time.Second)
		e := explained(w, "a")
		for _, name := range []string{`window "long" reserves 4 GPUs`, `window "short" reserves 8 GPUs`} {
			if !strings.Contains(e.WaitsFor.String(), name) {
				w.T.Errorf("%q does not say: %s", e.WaitsFor.String(), name)
			}
		}
	})
}

// Explain and plan do not show GPUs as chosen that are reserved by a window.
func TestWindowsAreNotChosen(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) {
		c.Windows = []window.Window{{Name: "kernel", Start: time.Now().Add(time.Hour), Duration: time.Hour, Nodes: []string{"*-1", "*-2"}}}
	}}, func(w *bed.World) {
		w.AddNodes(3, 4)
		w.StartPlacer()
		long := map[string]string{"pal_duration": "3h"}
		w.Submit(bed.Gang{Name: "first", GPUs: 3, Runs: time.Hour, Meta: long})
		w.ExpectRunning("first", 10*time.Second)
		second := bed.Gang{Name: "second", GPUs: 4, Runs: time.Hour, Meta: long}
		planned := second.Job()
		p, err := snapshot(w).Plan(w.T.Context(), planned)
		if err != nil {
			w.T.Fatal(err)
		}
		w.Submit(second)
		w.RunFor(10 * time.Second)
		e := explained(w, "second")
		for what, e := range map[string]*palapi.Explanation{"plan": p, "explain": e} {
			d := e.Decision
			if e.Wait == nil || d.Placed || d.Chosen != nil || d.Candidates.Free != 1 || d.Candidates.Kept != 8 || d.Candidates.Allocated != 3 {
				w.T.Errorf("%s: placed %v, chosen %v, candidates %+v, reason %q", what, d.Placed, d.Chosen, d.Candidates, e.Reason.String())
			}
			if !strings.Contains(e.Reason.String(), `window "kernel" reserves 8 GPUs`) {
				w.T.Errorf("%s: reason %q", what, e.Reason.String())
			}
		}
	})
}
