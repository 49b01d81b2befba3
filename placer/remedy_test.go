// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// Of a job that can never run it is said what would have to change, planned or waiting,
// each in a form that -what-if takes and that then could run; and nothing of what is only
// in the way now.
func TestNeverRuns(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // of the bubble
		w.AddNodes(3, 4)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "busy", Members: 2, GPUs: 4, Runs: time.Hour})
		w.ExpectRunning("busy", 10*time.Second)
		on := func(left, right string) func(*api.Job) {
			return func(j *api.Job) {
				j.Constraints = append(j.Constraints, &api.Constraint{LTarget: left, Operand: "=", RTarget: right})
			}
		}
		resources := func(j *api.Job) *api.Resources { return j.TaskGroups[0].Tasks[0].Resources }
		for _, c := range []struct {
			gang bed.Gang
			want string
			try  string
		}{
			{bed.Gang{Name: "members", Members: 64, GPUs: 4}, "It could run with 3 instead of 64 members (count=3).", "count=3"},
			{bed.Gang{Name: "gpus", Members: 2, GPUs: 8}, "It could run with 4 instead of 8 GPUs for each member (gpus=4).", "gpus=4"},
			{bed.Gang{Name: "near", Members: 3, GPUs: 2, Meta: map[string]string{"pal_locality": "node"}},
				"It could run without pal_locality = node (pal_locality=). It could run with 1 instead of 2 GPUs for each member (gpus=1). It could run with 2 instead of 3 members (count=2).", "pal_locality="},
			{bed.Gang{Name: "rack", Change: on("${meta.rack}", "r9")}, "It could run without its constraint on ${meta.rack} (without=${meta.rack}).", "without=${meta.rack}"},
			{bed.Gang{Name: "model", Change: func(j *api.Job) { resources(j).Devices[0].Name = "nvidia/gpu/H100" }},
				"It could run on any model of GPU instead of nvidia/gpu/H100 (device=nvidia/gpu).", "device=nvidia/gpu"},
			{bed.Gang{Name: "pool", Change: func(j *api.Job) { pool := "other"; j.NodePool = &pool }},
				"It could run in any node pool instead of other (node_pool=all).", "node_pool=all"},
			{bed.Gang{Name: "two", GPUs: 8, Change: on("${meta.rack}", "r9")},
				"It could run without its constraint on ${meta.rack} and with 1 instead of 8 GPUs for each member (gpus=1,without=${meta.rack}).", "gpus=1,without=${meta.rack}"},
			{bed.Gang{Name: "driver", Change: func(j *api.Job) { j.TaskGroups[0].Tasks[0].Driver = "docker" }},
				"No change of numbers, models or constraints lets it run: missing drivers: docker (3 of 3 nodes).", ""},
		} {
			job := c.gang.Job()
			nomad.Canonicalize(job)
			planned, err := snapshot(w).Plan(job)
			if err != nil {
				t.Fatal(err)
			}
			w.Submit(c.gang)
			w.RunFor(3 * time.Second)
			waits, err := snapshot(w).Explain(t.Context(), nomad.JobKey{Namespace: "default", ID: c.gang.Name})
			if err != nil {
				t.Fatal(err)
			}
			for how, e := range map[string]*placer.Explanation{"planned": planned, "waits": waits} {
				if got := strings.Join(e.Remedies, " "); e.State != gang.Unschedulable || got != c.want || e.Try != c.try {
					t.Errorf("%s %s is %s: %q, try %q", c.gang.Name, how, e.State, got, e.Try)
				}
				for _, o := range e.Obstacles {
					if o.Now {
						t.Errorf("%s %s: %s is beside the point", c.gang.Name, how, o)
					}
				}
			}
			if c.try == "" {
				continue
			}
			changes, err := placer.ParseChanges(c.try)
			if err == nil {
				err = changes.Apply(job)
			}
			if err != nil {
				t.Fatal(err)
			}
			if e, err := snapshot(w).Plan(job); err != nil || e.State != gang.Starting && e.State != gang.Waiting {
				t.Errorf("%s with %s: %+v, %v", c.gang.Name, c.try, e, err)
			}
		}
	})
}
