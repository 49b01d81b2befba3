// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// The answers about a cluster's jobs agree with what happens to them.
func TestSnapshotTellsTheTruth(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 2)
		w.Quarantine("GPU-1-1")
		w.StartPlacer()
		w.Submit(Gang{Name: "runs", GPUs: 2, Runs: time.Minute})
		w.ExpectRunning("runs", 5*time.Second)
		w.Submit(Gang{Name: "waits", GPUs: 2, Runs: time.Minute})
		w.Submit(Gang{Name: "never", Members: 5, GPUs: 1, Runs: time.Minute})
		w.Submit(Gang{Name: "odd", GPUs: 1, Meta: map[string]string{"pal_class": "Z"}})
		w.Submit(Gang{Name: "alone", GPUs: 1, Runs: time.Minute, Ungated: true})
		w.Submit(Gang{Name: "template", GPUs: 1, Change: func(j *api.Job) { j.ParameterizedJob = &api.ParameterizedJobConfig{} }})
		w.RunFor(10 * time.Second)
		for name, want := range map[string]struct {
			phase  palapi.State
			reason string
		}{
			"runs":     {palapi.Running, "its member runs"},
			"waits":    {palapi.Waiting, ""},
			"never":    {palapi.Unschedulable, "5 GPUs"},
			"odd":      {palapi.Rejected, "pal_class"},
			"alone":    {palapi.Native, "has no gate"},
			"template": {palapi.Template, ""},
		} {
			if e := w.explained(name); e.State != want.phase || !strings.Contains(e.Reason.String(), want.reason) || e.Reason.IsZero() {
				t.Errorf("%s is %s: %s", name, e.State, e.Reason.String())
			}
		}
		if e := w.explained("runs"); e.Decision == nil || e.Decision.Chosen == nil || len(e.Allocations) != 1 || e.Ready.IsZero() {
			t.Errorf("explain about the running job: %+v", e)
		}
		if e := w.explained("waits"); e.Wait == nil || e.Decision == nil {
			t.Errorf("explain about the waiting job: %+v", e)
		}
		s := w.snapshot()
		if _, err := s.Explain(context.Background(), Key("missing")); err == nil {
			t.Error("a job that does not exist is explained")
		}
		if len(s.Jobs()) != 6 {
			t.Errorf("jobs: %+v", s.Jobs())
		}
		w.checkGPUs(s)
	})
}

// checkGPUs checks the answers about GPUs: two are held by a gang, one by a job that only Nomad
// manages, one is in quarantine.
func (w *World) checkGPUs(s *query.Snapshot) {
	w.T.Helper()
	busy := map[string]int{}
	for _, g := range s.GPUs() {
		busy[g.Job]++
		if out := g.Quarantine != nil; out != (g.ID == "GPU-1-1") || out && g.Available {
			w.T.Errorf("GPU: %+v", g)
		}
	}
	if busy["default/runs"] != 2 || busy["default/alone"] != 1 {
		w.T.Errorf("held GPUs: %v", busy)
	}
	if s.Model().Profile != nil || len(s.Warnings()) > 0 {
		w.T.Errorf("profile: %v, warnings: %q", s.Model().Profile, s.Warnings())
	}
	for id, want := range map[string]string{"runs": "runs", "ru": "runs", "nobody": "nobody"} {
		if k, err := query.FindJob(s.Model().State.SortedJobs(), "default", id); err != nil || k != (cluster.JobKey{Namespace: "default", ID: want}) {
			w.T.Errorf("%q is %v, %v", id, k, err)
		}
	}
	if k, err := query.FindJob(s.Model().State.SortedJobs(), "*", "nobody"); err != nil || k.Namespace != "default" {
		w.T.Errorf("job nobody in any namespace is %v, %v", k, err)
	}
}

// A plan of a job predicts what happens when the job is submitted.
func TestPlansComeTrue(t *testing.T) {
	for _, c := range []struct {
		name  string
		gang  Gang
		phase palapi.State
	}{
		{"starts", Gang{Name: "a", GPUs: 2, Runs: time.Minute}, palapi.Starting},
		{"waits", Gang{Name: "a", Members: 2, GPUs: 2, Runs: time.Minute}, palapi.Waiting},
		{"never", Gang{Name: "a", Members: 5, GPUs: 1, Runs: time.Minute}, palapi.Unschedulable},
		{"rejected", Gang{Name: "a", GPUs: 1, Meta: map[string]string{"pal_duration": "soon"}}, palapi.Rejected},
	} {
		t.Run(c.name, func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(2, 2)
				p := w.StartPlacer()
				w.Submit(Gang{Name: "busy", GPUs: 2, Runs: time.Minute})
				w.ExpectRunning("busy", 5*time.Second)
				job := c.gang.Job()
				job.Canonicalize()
				e, err := w.snapshot().Plan(w.T.Context(), job)
				if err != nil || e.State != c.phase || e.Reason.IsZero() {
					t.Fatalf("planned: %+v, %v", e, err)
				}
				w.Submit(c.gang)
				w.RunFor(5 * time.Second)
				for _, j := range p.Status().Jobs {
					if j.Job == "a" && j.State != c.phase && !(c.phase == palapi.Starting && j.State == palapi.Running) {
						t.Errorf("it is %s: %s", j.State, j.Reason.String())
					}
				}
			})
		})
	}
}

// The plan of a running job predicts what happens when its file is run again.
func TestPlansOfRunningJobsComeTrue(t *testing.T) {
	for _, c := range []struct {
		name  string
		again Gang
		phase palapi.State
		says  string
		gpus  int
	}{
		{"the same", Gang{Name: "a", Members: 2, GPUs: 1, Runs: time.Hour}, palapi.Running, "would keep them", 2},
		{"larger", Gang{Name: "a", Members: 2, GPUs: 2, Runs: time.Hour}, palapi.Starting, "stop the whole job and start it again", 4},
		{"too large", Gang{Name: "a", Members: 2, GPUs: 3, Runs: time.Hour}, palapi.Running, "does not fit", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(2, 2)
				w.StartPlacer()
				w.Submit(Gang{Name: "a", Members: 2, GPUs: 1, Runs: time.Hour})
				w.ExpectRunning("a", 5*time.Second)
				job := c.again.Job()
				job.Canonicalize()
				e, err := w.snapshot().Plan(w.T.Context(), job)
				if err != nil || e.State != c.phase || !strings.Contains(e.Reason.String(), c.says) {
					t.Fatalf("planned: %+v, %v", e, err)
				}
				w.Submit(c.again)
				w.RunFor(30 * time.Second)
				if got := len(w.GPUs(Key("a"))); got != c.gpus {
					t.Errorf("it runs on %d GPUs, want %d", got, c.gpus)
				}
			})
		})
	}
}
