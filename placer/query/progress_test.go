// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
	"github.com/nomad-pal/nomad-pal/placer/window"
)

// The end of a job's first run without pal_duration is unknown: explain says so, and what to set. A
// service has no expected end.
func TestEndNotKnown(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(3, 1)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "first", GPUs: 1, Runs: time.Hour})
		w.Submit(bed.Gang{Name: "longer", GPUs: 1, Runs: time.Hour, Meta: map[string]string{"pal_duration": "1m"}})
		w.Submit(bed.Gang{Name: "serves", GPUs: 1, Service: true})
		w.ExpectRunning("first", 10*time.Second)
		w.ExpectRunning("serves", 10*time.Second)
		w.ExpectRunning("longer", 10*time.Second)
		w.RunFor(10 * time.Minute)
		for name, want := range map[string]string{
			"first":  "not known: the job has no pal_duration, and none of its runs has ended yet",
			"longer": "not known: the job has run longer than predicted",
			"serves": "when somebody stops the job, which is a service",
		} {
			if e := explained(w, name); !e.EndTo.IsZero() || e.EndWhy != want || !shown(w, name).EndTo.IsZero() {
				w.T.Errorf("%s: %v, %q", name, e.EndTo, e.EndWhy)
			}
		}
	})
}

// One run is enough to predict the next run of the same name: explain shows how long it took, and
// how uncertain the end is, also by a placer that started since.
func TestEndAfterOneRun(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(1, 1)
		p := w.StartPlacer()
		g := bed.Gang{Name: "again", GPUs: 1, Runs: 3 * time.Minute}
		w.Submit(g)
		w.ExpectFinished("again", 5*time.Minute)
		w.RunFor(time.Minute)
		p.Kill()
		w.StartPlacer()
		if err := w.Rerun(nomadtest.Key{Namespace: "default", ID: "again"}); err != nil {
			w.T.Fatal(err)
		}
		w.ExpectRunning("again", time.Minute)
		w.RunFor(5 * time.Second)
		e := explained(w, "again")
		least, most := time.Until(e.EndFrom), time.Until(e.EndTo)
		if least > 3*time.Minute || most < 3*time.Minute || most > 15*time.Minute || !strings.Contains(e.EndWhy, "its last run took ") || !strings.HasSuffix(e.EndWhy, "; 8 of 10 jobs end within their range") {
			w.T.Errorf("ends in %v to %v: %s", least, most, e.EndWhy)
		}
	})
}

// An open window is shown for each GPU that it reserves, and for no other.
func TestOpenWindows(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) {
		now := time.Now()
		c.Windows = []window.Window{
			{Name: "kernel", Start: now.Add(-time.Hour), Duration: 2 * time.Hour, Nodes: []string{"*-1"}},
			{Name: "paper", Start: now.Add(-time.Hour), Duration: 2 * time.Hour, Nodes: []string{"*-2"}, For: []string{"vision", "secret/job"}},
			{Name: "later", Start: now.Add(time.Hour), Duration: 2 * time.Hour},
		}
	}}, func(w *bed.World) {
		w.AddNodes(3, 2)
		w.StartPlacer()
		w.RunFor(5 * time.Second)
		for _, g := range snapshot(w).GPUs() {
			want := regexp.MustCompile("^$")
			switch {
			case strings.HasSuffix(g.Node, "-1"):
				want = regexp.MustCompile("^kernel until ")
			case strings.HasSuffix(g.Node, "-2"):
				want = regexp.MustCompile("^paper until ")
			}
			if !want.MatchString(g.Window) {
				w.T.Errorf("%s of %s is reserved by %q", g.ID, g.Node, g.Window)
			}
		}
	})
}

// An array shows how many of its runs wait, run and have ended; each run names its array.
func TestRunsOfArray(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(1, 2)
		w.StartPlacerOfChildren()
		w.Submit(bed.Gang{Name: "sweep", GPUs: 1, Runs: time.Minute, Change: bed.Parameterized})
		for range 5 {
			if _, err := w.Dispatch("sweep", nil); err != nil {
				w.T.Fatal(err)
			}
		}
		w.RunFor(90 * time.Second)
		runs, named := shown(w, "sweep").Runs, 0
		for _, j := range snapshot(w).Jobs() {
			if j.Parent == "sweep" {
				named++
			}
		}
		if runs == nil || runs.Total() != 5 || runs.Running != 2 || runs.Complete+runs.Waiting != 3 || named != runs.Running+runs.Waiting {
			w.T.Errorf("runs: %v, %d name it", runs, named)
		}
		if e := explained(w, "sweep"); runs != nil && (e.Runs == nil || *e.Runs != *runs) {
			w.T.Errorf("explain: %v, the list: %v", e.Runs, runs)
		}
	})
}
