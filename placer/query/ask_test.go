// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// A waiting job without an estimate is asked for one, and told the benefit: here it would start
// beside the queue's head, which waits for more GPUs than are free.
func TestAsksForAnEstimate(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		for i := range 4 { // here, jobs without an estimate are expected to run half an hour
			w.Submit(bed.Gang{Name: fmt.Sprintf("silent-%d", i), GPUs: 1, Runs: 30 * time.Minute})
		}
		w.RunFor(31 * time.Minute)
		w.Submit(bed.Gang{Name: "honest", GPUs: 1, Runs: time.Minute, Meta: map[string]string{"pal_duration": "1m"}})
		w.RunFor(2 * time.Minute)
		w.Submit(bed.Gang{Name: "half", GPUs: 2, Runs: 2 * time.Hour, Meta: map[string]string{"pal_duration": "20m"}})
		w.ExpectRunning("half", 10*time.Second)
		for _, id := range []string{"head", "small"} {
			meta := map[string]string{"pal_duration": "1m"}
			if id == "small" {
				meta = nil
			}
			w.Submit(bed.Gang{Name: id, GPUs: map[string]int{"head": 4, "small": 2}[id], Runs: time.Hour, Meta: meta})
		}
		w.RunFor(20 * time.Second)
		s := snapshot(w)
		s.Activity.Working = true
		explained := func(w *bed.World, id string) *palapi.Explanation {
			e, err := s.Explain(w.T.Context(), bed.Key(id))
			if err != nil {
				w.T.Fatal(err)
			}
			return e
		}
		for _, id := range []string{"head", "half"} {
			if e := explained(w, id); e.Ask != "" {
				w.T.Errorf("%s, whose run time is known, is asked: %q", id, e.Ask)
			}
		}
		e := explained(w, "small")
		w.T.Logf("%s %+v %s", e.Reason, e.Wait, e.Ask)
		for _, want := range []string{"pal_duration", "now if it runs 10m", "If the job runs for less than 18h, the job would be overdue", "instead of after 36h"} {
			if !strings.Contains(e.Ask, want) {
				w.T.Errorf("%q lacks %q", e.Ask, want)
			}
		}
		if after := explained(w, "small"); after.Ask != e.Ask || fmt.Sprint(after.Reason) != fmt.Sprint(e.Reason) {
			w.T.Errorf("the second answer is %q, %q: asking has changed something", after.Reason, after.Ask)
		}
		w.Submit(bed.Gang{Name: "small", GPUs: 2, Runs: 10 * time.Minute, Meta: map[string]string{"pal_duration": "10m"}})
		w.ExpectRunning("small", 10*time.Second) // as explain predicted
	})
}

// Explain does not ask for an estimate if the job starts within the hour anyway, where an estimate
// could only delay it.
func TestAsksForNothingThatHarms(t *testing.T) {
	short := func(c *model.Config) { c.Queue.MaxWait, c.Queue.Order = 10*time.Minute, queue.FIFO }
	bed.Run(t, bed.Options{Seed: 1, Placer: short}, func(w *bed.World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "holds", GPUs: 4, Runs: 5 * time.Hour, Meta: map[string]string{"pal_duration": "5h"}})
		w.ExpectRunning("holds", 10*time.Second)
		w.Submit(bed.Gang{Name: "silent", GPUs: 4, Runs: time.Hour})
		w.RunFor(20 * time.Second)
		s := snapshot(w)
		s.Activity.Working = true
		e, err := s.Explain(w.T.Context(), bed.Key("silent"))
		if err != nil || e.Ask != "" {
			w.T.Errorf("%v %q", err, e.Ask)
		}
	})
}

// A job that declines free GPUs, because others are closer together, would decline them with an
// estimate, too. Explain does not promise that it would start now.
func TestEstimateDoesNotEndTheWait(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(2, 4)
		w.StartPlacer()
		for i := range 2 {
			w.Submit(bed.Gang{Name: fmt.Sprint("half-", i), GPUs: 2, Runs: 10 * time.Hour, Meta: map[string]string{"pal_duration": "2m"}, Change: func(j *api.Job) {
				j.Constraints = append(j.Constraints, &api.Constraint{LTarget: "${node.unique.name}", Operand: "=", RTarget: fmt.Sprint("node-", i)})
			}})
		}
		w.RunFor(5 * time.Second)
		w.Submit(bed.Gang{Name: "near", Members: 2, GPUs: 2, Runs: time.Hour})
		w.RunFor(5 * time.Second)
		s := snapshot(w)
		s.Activity.Working = true
		e, err := s.Explain(w.T.Context(), bed.Key("near"))
		if err != nil || e.Wait == nil || e.Wait.Reason != reason.Locality {
			w.T.Fatalf("%+v, %v: the test proves nothing", e, err)
		}
		if strings.Contains(e.Ask, "now if it runs") {
			w.T.Errorf("promised: %s", e.Ask)
		}
		w.Submit(bed.Gang{Name: "near", Members: 2, GPUs: 2, Runs: time.Hour, Meta: map[string]string{"pal_duration": "1h"}})
		w.RunFor(5 * time.Second)
		if e, err := snapshot(w).Explain(w.T.Context(), bed.Key("near")); err != nil || e.Wait == nil || e.Wait.Reason != reason.Locality {
			w.T.Errorf("with an estimate: %+v, %v", e, err)
		}
	})
}
