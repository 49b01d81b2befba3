// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// In all counts of a tenant's GPUs, a part of a GPU counts as its fraction.
func TestPartsCountForTheirShare(t *testing.T) {
	none := 0
	bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) {
		c.Queue.Tenants = map[string]queue.Tenant{"default": {Quota: 1, BorrowingLimit: &none, MaxGPUsPerUser: 1}}
	}}, func(w *bed.World) {
		w.Parts = 4
		w.AddNodes(2, 1)
		w.StartPlacer()
		for _, name := range []string{"a", "b", "c"} {
			w.Submit(bed.Gang{Name: name, GPUs: 1, Device: "nvidia/gpu.shared", Runs: time.Hour})
			w.RunFor(10 * time.Second)
		}
		w.Submit(bed.Gang{Name: "whole", GPUs: 1, Runs: time.Hour})
		w.RunFor(20 * time.Second)
		s := snapshot(w)
		u := s.Tenants(func(string) bool { return true })[0]
		if u.GPUs != 0.75 || len(u.Users) != 1 || u.Users[0].GPUs != 0.75 {
			w.T.Errorf("three parts of four are %g GPUs of the tenant, of its users %v", u.GPUs, u.Users)
		}
		e, err := s.Explain(w.T.Context(), cluster.JobKey{Namespace: "default", ID: "whole"})
		if err != nil {
			w.T.Fatal(err)
		}
		if want := "needs 1 GPU; tenant default holds 0.75 and may hold at most 1 (quota and borrowing_limit)"; e.Reason.String() != want {
			w.T.Errorf("it waits for\n%s, want\n%s", e.Reason.String(), want)
		}
	})
}

// A member that requests more parts than a GPU has is not told about whole GPUs: all its parts are on
// one GPU, so other GPUs of the node do not help.
func TestTooManyParts(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.Parts = 4
		w.AddNodes(2, 1)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "five", GPUs: 5, Device: "nvidia/gpu.shared"})
		w.RunFor(10 * time.Second)
		e, err := snapshot(w).Explain(w.T.Context(), cluster.JobKey{Namespace: "default", ID: "five"})
		const want = `each member of group "workers" needs 5 parts of one GPU; no GPU has that many: a GPU has only 4 parts (2 of 2 nodes)`
		if err != nil || e.Reason.String() != want {
			w.T.Errorf("%v %q, want %q", err, e.Reason, want)
		}
	})
}

// Explain names the current neighbours of a running job, not those at its placement.
func TestNeighboursNow(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.Parts = 2
		w.AddNodes(1, 1)
		w.StartPlacer()
		first := cluster.JobKey{Namespace: "default", ID: "first"}
		for _, c := range []struct{ name, class string }{{"first", "B"}, {"second", "D"}} {
			w.Submit(bed.Gang{Name: c.name, GPUs: 1, Device: "nvidia/gpu.shared", Runs: 5 * time.Minute, Meta: map[string]string{"pal_class": c.class}})
			w.RunFor(2 * time.Minute)
		}
		neighbours := func() (classes string) {
			e, err := snapshot(w).Explain(w.T.Context(), first)
			if err != nil || e.Decision == nil || len(e.Decision.Chosen.Members) != 1 {
				w.T.Fatal(e, err)
			}
			for _, n := range e.Decision.Chosen.Members[0].Neighbours {
				classes += string(n.Class)
			}
			return classes
		}
		if got := neighbours(); got != "D" {
			w.T.Errorf("beside one of class D that came later, explain names %q", got)
		}
	})
}

// If the only free part is beside a neighbour that the job excludes, the job waits. Plan and
// explain say for what, which job must end, and which change of the job would help. The job starts
// when the neighbour has ended.
func TestRefusedPart(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.Parts = 2
		w.AddNodes(1, 1)
		w.StartPlacer()
		job := func(name string) bed.Gang {
			return bed.Gang{Name: name, GPUs: 1, Device: "nvidia/gpu.shared", Runs: 10 * time.Minute, Meta: map[string]string{"pal_class": "A", "pal_duration": "10m"}}
		}
		w.Submit(job("first"))
		w.RunFor(time.Minute)
		says := func(what string, e *palapi.Explanation, err error) {
			w.T.Helper()
			if err != nil {
				w.T.Fatal(err)
			}
			const want = "needs 1 GPU; 1 is free, but this job would slow the others on them too much (refuse_bad_neighbours)"
			if e.State != palapi.Waiting || e.Reason.String() != want || e.Decision.Reason.Kind != reason.Refused {
				w.T.Errorf("%s: %s, %q, and %q", what, e.State, e.Reason, e.Decision.Reason)
			}
			if len(e.Remedies) != 1 || e.Remedies[0].Kind != reason.AwaitPart {
				w.T.Errorf("%s: remedies %v", what, e.Remedies)
			}
			if h := e.Holders; h == nil || len(h.Jobs) != 1 || h.Jobs[0].Job != "default/first" || !h.Jobs[0].Needed || !h.Enough {
				w.T.Errorf("%s: holders %+v", what, h)
			}
			if e.StartTo.IsZero() {
				w.T.Errorf("%s: no start is expected", what)
			}
		}
		e, err := snapshot(w).Plan(w.T.Context(), job("second").Job())
		says("plan", e, err)
		w.Submit(job("second"))
		w.RunFor(time.Minute)
		second := cluster.JobKey{Namespace: "default", ID: "second"}
		e, err = snapshot(w).Explain(w.T.Context(), second)
		says("explain", e, err)
		w.RunFor(10 * time.Minute)
		if e, err = snapshot(w).Explain(w.T.Context(), second); err != nil || e.State != palapi.Running {
			w.T.Errorf("its neighbour has ended: %+v, %v", e, err)
		}
	})
}
