// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

func between(least, most int64) func(*api.Job) {
	return func(j *api.Job) { j.TaskGroups[0].Scaling = &api.ScalingPolicy{Min: &least, Max: &most} }
}

// For an elastic gang that would wait, or waits, the answers state the minimum number of members;
// for one that would start, the number that fits. For a job that waits for an elastic gang, they
// state what that gang may give back, and when.
func TestElasticAnswers(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(3, 4)
		p := w.StartPlacer()
		defer beating(w, "agent", p.Vitals)()
		elastic := func(name string, gpus int, least, most int64) bed.Gang {
			return bed.Gang{Name: name, GPUs: gpus, Runs: 10 * time.Hour, Change: between(least, most), Meta: map[string]string{"pal_elastic": "true", "pal_duration": "10h"}}
		}
		plan := func(g bed.Gang) *palapi.Explanation {
			job := g.Job()
			cluster.Canonicalize(job)
			e, err := snapshot(w).Plan(w.T.Context(), job)
			if err != nil || e.Elastic == nil || !strings.Contains(e.Note, "elastic: ") {
				t.Fatalf("plan %s: %+v, %v", g.Name, e, err)
			}
			return e
		}
		w.Submit(bed.Gang{Name: "fixed", GPUs: 2, Runs: time.Hour, Meta: map[string]string{"pal_duration": "1h"}})
		w.ExpectRunning("fixed", 10*time.Second)
		if e := plan(elastic("wide", 1, 2, 8)); e.State != palapi.Starting || e.Decision.Demand != 8 || len(chosenIDs(e.Decision.Chosen)) != e.Decision.Demand {
			t.Errorf("would start: %+v of %+v", e, e.Decision)
		}
		w.Submit(elastic("wide", 1, 2, 10))
		w.ExpectRunning("wide", 10*time.Second)
		w.RunFor(time.Second)
		w.Submit(bed.Gang{Name: "waits", Members: 4, GPUs: 1, Runs: time.Minute, Meta: map[string]string{"pal_duration": "1m"}})
		w.RunFor(2 * time.Second)
		w.Submit(elastic("narrow", 2, 1, 4))
		w.RunFor(2 * time.Second)
		e := explained(w, "narrow")
		planned := plan(elastic("other", 2, 1, 4))
		for how, e := range map[string]*palapi.Explanation{"waits": e, "planned": planned} {
			if e.State != palapi.Waiting || e.Decision.Demand != 2 || !strings.Contains(e.Reason.String(), "needs 2 GPUs") || e.StartTo.IsZero() || !strings.Contains(e.Note, "the gang starts with 1 to 4 members") {
				t.Errorf("%s: %+v of %+v", how, e, e.Decision)
			}
		}
		for from, jobs := range map[string][]palapi.JobStatus{"status": p.Status().Jobs, "snapshot": snapshot(w).Jobs()} {
			for _, j := range jobs {
				if want := map[string]string{"narrow": "2–8", "wide": "10", "waits": "4", "fixed": "2"}[j.Job]; j.Size() != want {
					t.Errorf("%s: %s has %s GPUs, want %s", from, j.Job, j.Size(), want)
				}
			}
		}
	})
}

// The expected end of an elastic gang depends on its present number of members, and explain says by
// how much.
func TestEndOfElasticGang(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "fixed", GPUs: 2, Runs: 10 * time.Hour})
		w.ExpectRunning("fixed", 10*time.Second)
		w.Submit(bed.Gang{Name: "wide", Runs: 10 * time.Hour, Change: between(1, 4), Meta: map[string]string{"pal_elastic": "true", "pal_duration": "1h"}})
		w.ExpectRunning("wide", 10*time.Second)
		e := explained(w, "wide")
		if want := "pal_duration = 1h counts as the time on the best GPUs that the job can get; with 2 of 4 members 2 times as long; "; !strings.HasPrefix(e.EndWhy, want) || time.Until(e.EndTo) < 110*time.Minute {
			w.T.Errorf("it ends at %v: %s; want %s", e.EndFrom, e.EndWhy, want)
		}
	})
}
