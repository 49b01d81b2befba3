// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// A waiting gang is told which jobs hold GPUs that it could use, until when approximately, which of
// those GPUs it needs, and how many of its members would start now. With three members, the gang
// would wait for GPUs closer together. Callers who may not see a job do not get its name. Asking
// changes nothing: the answer stays the same.
func TestHolders(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(2, 4)
		p := w.StartPlacer()
		defer beating(w, "agent", p.Vitals)()
		w.Submit(bed.Gang{Name: "known", GPUs: 2, Runs: time.Hour, Meta: map[string]string{"pal_duration": "1h"}})
		w.ExpectRunning("known", 10*time.Second)
		w.Submit(bed.Gang{Name: "unknown", GPUs: 3, Runs: 10 * time.Hour})
		w.ExpectRunning("unknown", 10*time.Second)
		w.Submit(bed.Gang{Name: "waits", Members: 5, GPUs: 1, Runs: time.Hour, Meta: map[string]string{"pal_duration": "2h"}})
		w.RunFor(time.Minute)
		s := snapshot(w)
		k := cluster.JobKey{Namespace: "default", ID: "waits"}
		for range 2 {
			e, err := s.Explain(t.Context(), k)
			if err != nil || e.Holders == nil || len(e.Holders.Jobs) != 2 || !e.Holders.Enough || e.Holders.Omitted != 0 {
				t.Fatalf("%+v, %v", e, err)
			}
			first, second := e.Holders.Jobs[0], e.Holders.Jobs[1]
			if first.Job != "default/known" || first.GPUs != 2 || !first.Needed || time.Until(first.EndTo) < 40*time.Minute || !first.EndTo.After(first.EndFrom) {
				t.Errorf("first %+v", first)
			}
			if second.Job != "default/unknown" || second.GPUs != 3 || second.Needed || !second.EndFrom.IsZero() {
				t.Errorf("second %+v", second)
			}
			if want := []string{"With count = 2 instead of 5, the job would fit now."}; !slices.Equal(sentences(e.Remedies), want) {
				t.Errorf("%q, want %q", e.Remedies, want)
			}
			if e.Submitted.IsZero() {
				t.Errorf("%+v", e)
			}
			if his := e.RedactedFor(func(string) bool { return false }); his.Holders.Jobs[0].Job != palapi.Unseen || e.Holders.Jobs[0].Job != "default/known" {
				t.Errorf("redacted %+v of %+v", his.Holders, e.Holders)
			}
		}
		planned := bed.Gang{Name: "planned", Members: 4, GPUs: 2, Meta: map[string]string{"pal_duration": "1m"}}.Job() // shorter than the known ends
		cluster.Canonicalize(planned)
		if e, err := snapshot(w).Plan(w.T.Context(), planned); err != nil || e.Holders == nil || len(e.Holders.Jobs) != 2 || !strings.Contains(strings.Join(sentences(e.Remedies), " "), "With count = 1 instead of 4") {
			t.Errorf("planned %+v, %v", e, err)
		}
		e, err := s.Explain(t.Context(), cluster.JobKey{Namespace: "default", ID: "known"})
		if err != nil || len(e.Alternatives) != 1 || e.Alternatives[0].What != "the best now" || e.Alternatives[0].Cost <= 0 {
			t.Errorf("known %+v, %v", e, err)
		}
	})
}

// If a job was stopped and its tasks take long to end, both a gang that waits for its GPUs and a
// caller who asks about that job are told so.
func TestHolderStopping(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Nomad: nomadtest.Options{Kill: time.Minute}}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(2, 4)
		p := w.StartPlacer()
		defer beating(w, "agent", p.Vitals)()
		slowly := func(j *api.Job) { j.TaskGroups[0].Tasks[0].KillTimeout = new(time.Hour) }
		for _, name := range []string{"goes on", "stops"} {
			w.Submit(bed.Gang{Name: name, Members: 2, GPUs: 2, Runs: time.Hour, Meta: map[string]string{"pal_duration": "1h"}, Change: slowly})
			w.ExpectRunning(name, 10*time.Second)
		}
		w.Submit(bed.Gang{Name: "waits", GPUs: 4, Runs: time.Hour})
		stops, waits := nomadtest.Key{Namespace: "default", ID: "stops"}, cluster.JobKey{Namespace: "default", ID: "waits"}
		w.RunFor(time.Minute)
		if e, err := snapshot(w).Explain(t.Context(), waits); err != nil || len(e.Holders.Jobs) != 2 || e.Holders.Jobs[0].Stopping || e.Holders.Jobs[1].Stopping {
			t.Fatalf("%+v, %v", e, err)
		}
		if err := w.Stop(stops); err != nil {
			t.Fatal(err)
		}
		w.RunFor(10 * time.Second)
		e, err := snapshot(w).Explain(t.Context(), waits)
		if err != nil || len(e.Holders.Jobs) != 2 {
			t.Fatalf("%+v, %v", e, err)
		}
		first, second := e.Holders.Jobs[0], e.Holders.Jobs[1]
		if first.Job != "default/stops" || !first.Stopping || !first.EndFrom.IsZero() || !first.Needed || !e.Holders.Enough || second.Needed || second.Stopping || second.EndFrom.IsZero() {
			t.Errorf("%+v, %+v", first, second)
		}
		o, err := snapshot(w).Explain(t.Context(), cluster.JobKey(stops))
		if want := "0 of 2 members complete; 2 are still stopping and hold their GPUs"; err != nil || o.Reason.String() != want {
			t.Errorf("%q, want %q: %v", o.Reason.String(), want, err)
		}
	})
}

// A gang is told if it would fit with its members farther apart.
func TestFartherApart(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(2, 4)
		p := w.StartPlacer()
		defer beating(w, "agent", p.Vitals)()
		for _, name := range []string{"one", "other"} {
			w.Submit(bed.Gang{Name: name, GPUs: 3, Runs: time.Hour, Meta: map[string]string{"pal_duration": "5m"}})
			w.ExpectRunning(name, 10*time.Second)
		}
		w.Submit(bed.Gang{Name: "near", Members: 2, GPUs: 1, Runs: time.Hour, Meta: map[string]string{"pal_locality": "node"}})
		w.RunFor(time.Minute)
		e, err := snapshot(w).Explain(w.T.Context(), cluster.JobKey{Namespace: "default", ID: "near"})
		want := []string{"Without pal_locality = node, the job would fit now, on GPUs farther apart; it would start at 2000-01-01 00:07 UTC at the latest, because closer GPUs may come free.", "With count = 1 instead of 2, the job would fit now."}
		if err != nil || !slices.Equal(sentences(e.Remedies), want) {
			w.T.Errorf("%q, want %q: %v", e.Remedies, want, err)
		}
	})
}

// A GPU's ID is shortened to the part that distinguishes it from all others.
func TestIDLength(t *testing.T) {
	t.Parallel()
	for want, ids := range map[int][]string{
		12: {"GPU-12345678-1", "GPU-22345678-1"},
		14: {"GPU-12345678-1", "GPU-12345678-2", "GPU-12345678-2"},
		15: {"GPU-12345678-1", "GPU-12345678-11"},
		13: {"GPU-12345678-1::0", "GPU-12345678-1::1", "GPU-123456789::0"},
	} {
		if got := palapi.IDLength(ids); got != want {
			t.Errorf("%q: %d, want %d", ids, got, want)
		}
	}
}
