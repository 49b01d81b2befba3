// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// For an ended job, the answers distinguish success, failure and stop, and contain the times of its
// end and its submission.
func TestOutcomes(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(4, 4)
		w.StartPlacer()
		began := time.Now()
		w.Submit(bed.Gang{Name: "works", Members: 2, Runs: 3 * time.Minute})
		w.Submit(bed.Gang{Name: "half", Members: 2, Runs: 2 * time.Minute, Exit: 3, OneExit: true, Ungated: true})
		w.Submit(bed.Gang{Name: "stopped", Members: 2})
		w.Submit(bed.Gang{Name: "waited", GPUs: 8})
		w.RunFor(10 * time.Minute)
		for _, name := range []string{"stopped", "waited"} {
			if err := w.Stop(nomadtest.Key{Namespace: "default", ID: name}); err != nil {
				t.Fatal(err)
			}
		}
		stopped := time.Now()
		w.RunFor(time.Minute)
		s := snapshot(w)
		for _, c := range []struct {
			name, status, reason string
			at                   time.Time
		}{
			{"works", "complete", "2 of 2 members complete", began.Add(3 * time.Minute)},
			{"half", "failed", `task "work" ended with exit code 3 on node `, began.Add(2 * time.Minute)},
			{"stopped", "stopped", "0 of 2 members complete", stopped},
			{"waited", "stopped", "0 of 1 member complete", stopped},
		} {
			e, err := s.Explain(t.Context(), cluster.JobKey{Namespace: "default", ID: c.name})
			if err != nil {
				t.Fatal(err)
			}
			o := e.Outcome
			if e.State != palapi.Ended || o == nil || o.Status != c.status || !strings.HasPrefix(o.Reason.String(), c.reason) || e.Reason.String() != o.Reason.String() || o.At.Sub(c.at).Abs() > 10*time.Second {
				t.Errorf("%s is %s: %+v (after %s)", c.name, e.State, o, o.At.Sub(began))
			}
			if e.Submitted.Sub(began).Abs() > time.Second {
				t.Errorf("%s: submitted %s after it was", c.name, e.Submitted.Sub(began))
			}
		}
	})
}

// A stopped parameterized job starts no more runs. Its existing runs go on: they are still one line
// in lists, and explain shows how to stop them.
func TestStoppedTemplate(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T
		w.AddNodes(1, 4)
		w.StartPlacerOfChildren()
		w.Submit(bed.Gang{Name: "array", GPUs: 2, Runs: time.Hour, Change: bed.Parameterized})
		for range 3 {
			if _, err := w.Dispatch("array", nil); err != nil {
				t.Fatal(err)
			}
		}
		w.RunFor(10 * time.Second)
		if err := w.Stop(bed.Key("array")); err != nil {
			t.Fatal(err)
		}
		w.RunFor(10 * time.Second)
		e := explained(w, "array")
		const want = ": the job was stopped, and starts no more runs. Its runs: 2 running, 1 waiting, of 3."
		if e.Outcome.Status != "stopped" || !strings.HasSuffix(e.Headline(time.Now()), want) {
			t.Errorf("%s: %s", e.Outcome.Status, e.Headline(time.Now()))
		}
		if next := e.Next(""); !slices.Equal(next, []string{"The job's runs continue. To stop these runs: nomad-pal cancel array"}) {
			t.Errorf("next: %q", next)
		}
		js := snapshot(w).Jobs()
		if js = palapi.ByArray(js, js); len(js) != 1 || js[0].Job != "array" || js[0].State == palapi.Ended || js[0].GPUs != 6 {
			t.Errorf("the array is listed as %+v", js)
		}
		for _, k := range w.ChildrenOf(bed.Key("array")) {
			if err := w.Stop(k); err != nil {
				t.Fatal(err)
			}
		}
		w.RunFor(time.Minute)
		if e := explained(w, "array"); !strings.HasSuffix(e.Headline(time.Now()), "Its runs: 3 stopped, of 3.") || len(e.Next("")) > 0 {
			t.Errorf("%s %q", e.Headline(time.Now()), e.Next(""))
		}
		if js := snapshot(w).Jobs(); len(js) > 0 {
			t.Errorf("listed: %+v", js)
		}
	})
}
