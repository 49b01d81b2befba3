// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// Plan treats a job with a gate in only some groups as run would register it.
func TestPlanOfPartlyGated(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(1, 2)
		w.StartPlacer()
		job := bed.Gang{Name: "parts"}.Job()
		web := *job.TaskGroups[0]
		web.Name = new("web")
		job.TaskGroups = append(job.TaskGroups, &web)
		job.TaskGroups[0].Constraints, job.Constraints = job.Constraints, nil
		cluster.Canonicalize(job)
		if e, err := snapshot(w).Plan(w.T.Context(), job); err != nil || e.State != palapi.Starting || e.Decision.Demand != 2 {
			t.Errorf("%+v, %v", e, err)
		}
	})
}

// If the author's new version does not fit, the old gang keeps running. All answers say so, and
// so does plan for the new version.
func TestResubmittedTooLarge(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(2, 4)
		w.StartPlacer()
		g := bed.Gang{Name: "grows", Members: 2, GPUs: 1, Runs: time.Hour}
		w.Submit(g)
		w.Submit(bed.Gang{Name: "other", Members: 1, GPUs: 4, Runs: time.Hour})
		w.RunFor(5 * time.Second)
		larger := g
		larger.Members = 6
		w.Submit(larger)
		w.RunFor(5 * time.Second)
		const want = "the old version keeps running; the new version does not fit: needs 6 GPUs; 4 of 8 that match are free"
		s := snapshot(w)
		e, err := s.Explain(t.Context(), bed.Key("grows"))
		if err != nil || e.State != palapi.Resubmitted || !strings.HasPrefix(e.Reason.String(), want) {
			t.Errorf("explain: %+v, %v", e, err)
		}
		if j := s.Jobs()[0]; j.Job != "grows" || !strings.HasPrefix(j.Reason.String(), want) {
			t.Errorf("status: %+v", j)
		}
		for _, c := range []struct {
			bed.Gang
			want string
		}{{g, "runs on 2 GPUs and would keep them"}, {larger, "runs on 2 GPUs, and would keep running unchanged"}} {
			job := c.Job()
			cluster.Canonicalize(job)
			if e, err := snapshot(w).Plan(w.T.Context(), job); err != nil || !strings.HasPrefix(e.Reason.String(), c.want) {
				t.Errorf("plan of %d members: %+v, %v", c.Members, e, err)
			}
		}
	})
}

// Plan answers for a parameterized job as for its child, and says so. If it cannot have a child,
// plan says why.
func TestPlanOfTemplate(t *testing.T) {
	for _, children := range []bool{true, false} {
		bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) { c.Children = children }}, func(w *bed.World) {
			w.AddNodes(1, 2)
			w.StartPlacer()
			job := bed.Gang{Name: "array"}.Job()
			job.ParameterizedJob = &api.ParameterizedJobConfig{}
			cluster.Canonicalize(job)
			w.RunFor(5 * time.Second)
			e, err := snapshot(w).Plan(w.T.Context(), job)
			switch {
			case err != nil:
				w.T.Error(err)
			case children && (e.State != palapi.Starting || len(e.Members) != 1 || e.Members[0].Kind != reason.PlansChild):
				w.T.Errorf("served: %+v", e)
			case !children && (e.State != palapi.Rejected || !strings.Contains(e.Reason.String(), "rpc_address")):
				w.T.Errorf("not served: %+v", e)
			}
		})
	}
}
