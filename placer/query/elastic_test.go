// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
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
		started := time.Now()

		w.Submit(bed.Gang{Name: "waits", Members: 4, GPUs: 1, Runs: time.Minute, Meta: map[string]string{"pal_duration": "1m"}})
		w.RunFor(2 * time.Second)
		e, err := snapshot(w).Explain(t.Context(), cluster.JobKey{Namespace: "default", ID: "waits"})
		if err != nil || e.Holders == nil {
			t.Fatalf("%+v, %v", e, err)
		}
		said := map[string]palapi.Holder{}
		for _, h := range e.Holders.Jobs {
			said[h.Job] = h
		}
		if h := said["default/wide"]; h.MayGive != 8 || h.GiveFrom.Sub(started) < 10*time.Second || h.GiveFrom.Sub(started) > time.Hour {
			t.Errorf("the elastic one: %+v, now %v", h, started)
		}
		if h := said["default/fixed"]; h.MayGive != 0 || !h.GiveFrom.IsZero() {
			t.Errorf("the other one: %+v", h)
		}

		w.Submit(elastic("narrow", 2, 1, 4))
		w.RunFor(2 * time.Second)
		e = explained(w, "narrow")
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

// Of the members that an elastic gang could give back, only those count whose GPUs the waiting gang
// could use.
func TestMayGiveWhatIsOfUse(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(3, 4)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "wide", Runs: 10 * time.Hour, Change: between(1, 12), Meta: map[string]string{"pal_elastic": "true", "pal_duration": "10h"}})
		w.Expect("all GPUs are held", 2*time.Hour, func() bool { return len(w.GPUs(bed.Key("wide"))) == 12 })
		given := 0
		for n := range 3 {
			name := fmt.Sprint("waits-", n)
			w.Submit(bed.Gang{Name: name, GPUs: 4, Runs: time.Minute, Change: func(j *api.Job) {
				j.Constraints = append(j.Constraints, &api.Constraint{LTarget: "${node.unique.name}", RTarget: fmt.Sprint("node-", n), Operand: "="})
			}})
			w.RunFor(time.Second)
			e := explained(w, name)
			if e.Holders == nil || len(e.Holders.Jobs) != 1 || e.Holders.Jobs[0].GPUs != 4 {
				t.Fatalf("%s: holders %+v", name, e.Holders)
			}
			given += e.Holders.Jobs[0].MayGive
		}
		if given != 11 {
			t.Errorf("it may give %d GPUs of the three nodes, want all but one of 12", given)
		}
	})
}

// GPUs that a decision has just given to an elastic gang, but which are not in the ledger yet,
// count neither as held nor as available to give back (walk 920062).
func TestMayGiveWhatItHolds(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(2, 4)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "fixed", GPUs: 4, Runs: time.Hour})
		w.ExpectRunning("fixed", 10*time.Second)
		w.Submit(bed.Gang{Name: "wide", Runs: 10 * time.Hour, Change: between(1, 8), Meta: map[string]string{"pal_elastic": "true"}})
		w.Expect("it holds the other GPUs", 2*time.Hour, func() bool { return len(w.GPUs(bed.Key("wide"))) == 4 })
		w.Submit(bed.Gang{Name: "waits", GPUs: 4, Runs: time.Hour})
		w.RunFor(10 * time.Second)
		s := snapshot(w)
		given := pal.Placement{Members: make([]pal.Member, 8)}
		for u := range given.Members {
			given.Members[u].GPUs = []int{u}
		}
		s.Model().Queue.SetPlacement(gang.QueueTime(s.Model().Time), "default/wide", given)
		e, err := s.Explain(t.Context(), cluster.JobKey{Namespace: "default", ID: "waits"})
		if err != nil || e.Holders == nil {
			t.Fatalf("%+v, %v", e, err)
		}
		at := slices.IndexFunc(e.Holders.Jobs, func(h palapi.Holder) bool { return h.Job == "default/wide" })
		if h := e.Holders.Jobs[at]; h.GPUs != 4 || h.MayGive < 1 || h.MayGive > h.GPUs {
			t.Errorf("%+v, want 4 GPUs, and no more than those to give back", h)
		}
	})
}
