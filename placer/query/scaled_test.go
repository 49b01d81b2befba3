// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// scaled changes a job's count and keeps its pins, as nomad job scale does.
func scaled(w *bed.World, name string, count int) {
	w.T.Helper()
	job := w.Nomad.Job(bed.Key(name))
	job.TaskGroups[0].Count = &count
	if err := w.Register(job); err != nil {
		w.T.Fatal(err)
	}
}

func explained(w *bed.World, name string) *query.Explanation {
	w.T.Helper()
	e, err := snapshot(w).Explain(w.T.Context(), bed.Key(name))
	if err != nil {
		w.T.Fatal(err)
	}
	return e
}

// shown returns a job as the queue and status show it.
func shown(w *bed.World, name string) (j model.JobStatus) {
	w.T.Helper()
	for _, j := range snapshot(w).Jobs() {
		if j.Job == name {
			return j
		}
	}
	w.T.Fatalf("%s is not shown", name)
	return j
}

// If a service is scaled to more members than fit, explain shows what would make room for all. Its
// tenant holds the GPUs of its existing members only.
func TestScaledBeyond(t *testing.T) {
	for name, c := range map[string]struct {
		tenant  queue.Tenant
		count   int
		next    []string
		awaited int
	}{
		"its tenant's limit": {queue.Tenant{Quota: 3, BorrowingLimit: new(3)}, 8, []string{
			"The job's tenant may hold at most 6 GPUs: have the tenant's quota or borrowing_limit raised, or ask for fewer members.",
			"With count = 6 instead of 8, all its members could run now; ",
		}, 6},
		"the cluster": {queue.Tenant{}, 10, []string{"With count = 8 instead of 10, all its members could run now; "}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			bed.Run(t, bed.Options{Seed: 1, Placer: func(o *model.Config) {
				o.Queue.Tenants = map[string]queue.Tenant{"default": c.tenant}
			}}, func(w *bed.World) {
				t := w.T
				w.AddNodes(2, 4)
				w.StartPlacer()
				w.Submit(bed.Gang{Name: "api", Members: 2, Service: true, Meta: map[string]string{"pal_locality": "node"}})
				w.ExpectRunning("api", 10*time.Second)
				scaled(w, "api", c.count)
				w.RunFor(time.Minute)
				e := explained(w, "api")
				held := len(w.GPUs(bed.Key("api")))
				if e.State != gang.Starting || !slices.EqualFunc(sentences(e.Remedies), c.next, strings.HasPrefix) {
					t.Errorf("%s: %s: %q, want %q", e.State, e.Reason.String(), e.Remedies, c.next)
				}
				if j := shown(w, "api"); j.State != gang.Starting || !strings.HasPrefix(j.Reason.String(), "no room for the missing members") {
					t.Errorf("status: %s: %s", j.State, j.Reason)
				}
				s := snapshot(w)
				use := s.Tenants(func(string) bool { return true })
				if len(use) != 1 || use[0].GPUs != float64(held) || use[0].Awaited != float64(c.count-held) {
					t.Errorf("%d are held: %+v", held, use)
				}
			})
		})
	}
}

// Canaries get no GPUs if they and the old version's members together would exceed the tenant's
// limit, and the job says so. Within the limit they get them.
func TestCanariesWithinLimits(t *testing.T) {
	for name, c := range map[string]struct {
		may    int
		beside int // GPUs of the tenant's other job
		reason string
		next   []string
	}{
		"the tenant's limit": {1, 0, "no room for the canaries of the new version: needs 2 GPUs; the job's tenant may hold at most 1", []string{
			"The job's tenant may hold at most 1 GPU: have the tenant's quota or borrowing_limit raised; to update without canaries, run the job with canary = 0 in its update block: Nomad then replaces the members in place."}},
		"the tenant's quota": {2, 1, "no room for the canaries of the new version: needs 2 GPUs; tenant default holds 1 and may hold at most 2 (quota and borrowing_limit)", []string{
			"The tenant's limit is reached: the canaries start when other jobs of the tenant end; to update without canaries, run the job with canary = 0 in its update block: Nomad then replaces the members in place."}},
		"enough": {3, 1, "", nil}, // after the canary has been promoted
	} {
		t.Run(name, func(t *testing.T) {
			bed.Run(t, bed.Options{Seed: 1, Placer: func(o *model.Config) {
				o.Queue.Tenants = map[string]queue.Tenant{"default": {Quota: c.may, BorrowingLimit: new(int)}}
			}}, func(w *bed.World) {
				t := w.T
				w.AddNodes(3, 1)
				w.StartPlacer()
				if c.beside > 0 {
					w.Submit(bed.Gang{Name: "beside", Members: c.beside})
					w.ExpectRunning("beside", 10*time.Second)
				}
				w.Submit(bed.Gang{Name: "s", GPUs: 1, Service: true, Change: func(j *api.Job) {
					j.TaskGroups[0].Update = &api.UpdateStrategy{Canary: new(1), AutoPromote: new(true), MinHealthyTime: new(time.Second), MaxParallel: new(1)}
				}})
				w.ExpectRunning("s", 10*time.Second)
				first := w.Members(bed.Key("s"))[0].ID
				if err := w.Edit(bed.Key("s"), func(j *api.Job) { j.TaskGroups[0].Tasks[0].Env = map[string]string{"VERSION": "2"} }); err != nil {
					t.Fatal(err)
				}
				w.RunFor(2 * time.Minute)
				if members := w.Members(bed.Key("s")); len(members) != 1 || (members[0].ID == first) != (c.reason != "") {
					t.Errorf("%d members run: %s", len(members), w.Describe())
				}
				if e := explained(w, "s"); !strings.Contains(e.Reason.String(), c.reason) || !slices.Equal(sentences(e.Remedies), c.next) {
					t.Errorf("%s: %q", e.Reason.String(), e.Remedies)
				}
			})
		})
	}
}

// The changes with which a waiting job would start now use no GPU that is reserved for a job ahead
// of it, and are shown in the form in which they can be made.
func TestWhatWouldFit(t *testing.T) {
	long := map[string]string{"pal_duration": "5h"} // a long job would delay the one ahead
	service := bed.Gang{Name: "waits", Members: 3, Service: true}
	for name, c := range map[string]struct {
		order queue.Order
		ahead bool
		waits bed.Gang
		next  []string
		try   string
	}{
		"a service": {queue.Adaptive, false, service, []string{
			"With count = 1 instead of 3, the job would fit now; change the count in the jobspec and run the job again (nomad job scale works only after the deployment)."}, "count=1"},
		"behind another":                   {queue.Adaptive, true, bed.Gang{Name: "waits", Members: 3, Runs: time.Hour, Meta: long}, nil, "priority=80"},
		"where priorities do not count":    {queue.FIFO, true, bed.Gang{Name: "waits", Members: 3, Runs: time.Hour, Meta: long}, nil, ""},
		"behind another, by priority":      {queue.SRTF, true, bed.Gang{Name: "waits", Members: 3, Runs: time.Hour, Meta: long}, nil, "priority=80"},
		"behind one of as high a priority": {queue.Adaptive, true, bed.Gang{Name: "waits", Members: 3, Runs: time.Hour, Meta: long, Priority: 79}, nil, ""},
		"alone, by priority":               {queue.SRTF, false, bed.Gang{Name: "waits", Members: 3, Runs: time.Hour, Meta: long}, []string{"With count = 1 instead of 3, the job would fit now."}, "count=1"},
	} {
		t.Run(name, func(t *testing.T) {
			bed.Run(t, bed.Options{Seed: 1, Placer: func(o *model.Config) { o.Queue.Order, o.Queue.JobPriority = c.order, c.order != queue.FIFO }}, func(w *bed.World) {
				w.AddNodes(1, 4)
				w.StartPlacer()
				w.Submit(bed.Gang{Name: "runs", Members: 3, Runs: time.Hour, Meta: map[string]string{"pal_duration": "1h"}})
				w.ExpectRunning("runs", 10*time.Second)
				if c.ahead {
					w.Submit(bed.Gang{Name: "ahead", Members: 4, Runs: time.Minute, Priority: c.waits.Priority + c.waits.Priority/79, Meta: map[string]string{"pal_duration": "1m"}})
					w.RunFor(5 * time.Second)
				}
				w.Submit(c.waits)
				w.RunFor(20 * time.Second)
				e := explained(w, "waits")
				if e.State != gang.Waiting || !slices.Equal(sentences(e.Remedies), c.next) || e.Try != c.try {
					w.T.Errorf("%s: %s (%+v): %q, to try %q; want %q, %q", e.State, e.Reason.String(), e.Wait, e.Remedies, e.Try, c.next, c.try)
				}
				for _, o := range e.Tradeoffs {
					if c.ahead && o.Choice != nil {
						w.T.Errorf("it would not start with %s", o.Change)
					}
				}
			})
		})
	}
}

// Explain does not show GPUs that a service no longer has, even while a canary of a new version
// runs beside the old one.
func TestCanaryAfterScaleDown(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(2, 4)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "api", Members: 3, Service: true, Change: func(j *api.Job) {
			j.TaskGroups[0].Update = &api.UpdateStrategy{Canary: new(1)}
		}})
		w.ExpectRunning("api", 10*time.Second)
		w.RunFor(time.Minute)
		scaled(w, "api", 2)
		w.RunFor(time.Minute)
		if err := w.Edit(bed.Key("api"), func(j *api.Job) {
			j.TaskGroups[0].Count, j.TaskGroups[0].Tasks[0].Env = new(2), map[string]string{"VERSION": "2"}
		}); err != nil {
			w.T.Fatal(err)
		}
		w.Expect("a canary", time.Minute, func() bool { return len(w.GPUs(bed.Key("api"))) == 3 })
		e, has := explained(w, "api"), w.GPUs(bed.Key("api"))
		if len(has) != 3 || e.State != gang.Running {
			w.T.Fatalf("no canary: %s: %q", e.State, has)
		}
		for _, id := range chosenIDs(e.Decision.Chosen) {
			if !slices.Contains(has, id) {
				w.T.Errorf("it has %q, not %s", has, id)
			}
		}
		if n := len(chosenIDs(e.Decision.Chosen)); n != e.Decision.Demand {
			w.T.Errorf("%d GPUs of %d", n, e.Decision.Demand)
		}
	})
}

// A gang started after the snapshot was taken, so the snapshot contains none of its members. They
// do not count as lost, although the gang's record says that they were running.
func TestReadySinceTheSnapshot(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(2, 4)
		w.StartPlacer()
		var s *query.Snapshot
		w.Submit(bed.Gang{Name: "a", Members: 2, GPUs: 4, Runs: time.Hour})
		for range 10_000 { // until its pins have been registered, but not evaluated yet
			w.RunFor(time.Millisecond)
			if s = snapshot(w); s.Model().Observed(s.Model().State.Jobs[cluster.JobKey{Namespace: "default", ID: "a"}]).Nomad == gang.Starting {
				break
			}
		}
		w.ExpectRunning("a", 10*time.Second)
		w.RunFor(5 * time.Second)
		e, err := s.Explain(w.T.Context(), bed.Key("a"))
		if err != nil || e.State != gang.Starting || e.Decided.IsZero() || !e.Ready.IsZero() {
			w.T.Errorf("%s, decided %v, ready %v: %v", e.State, e.Decided, e.Ready, err)
		}
		if e := explained(w, "a"); e.State != gang.Running || e.Ready.IsZero() {
			w.T.Errorf("then %s, ready %v", e.State, e.Ready)
		}
	})
}

// A job that was scaled from zero to some members has been running since these started, not since
// it was placed.
func TestScaledFromNone(t *testing.T) {
	for _, pin := range []string{"class", "gpu"} {
		bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
			w.AddNodes(1, 4)
			w.StartPlacer()
			w.Submit(bed.Gang{Name: "api", Members: 2, Service: true, Meta: map[string]string{"pal_pin": pin}})
			w.ExpectRunning("api", 10*time.Second)
			w.RunFor(time.Hour)
			if e := explained(w, "api"); !e.Restarted.IsZero() {
				w.T.Errorf("%s: restarted at %v", pin, e.Restarted)
			}
			scaled(w, "api", 0)
			w.RunFor(time.Hour)
			scaled(w, "api", 2)
			again := time.Now()
			w.RunFor(time.Minute)
			if e := explained(w, "api"); e.State != gang.Running || e.Restarted.Before(again) || e.Restarted.After(again.Add(30*time.Second)) {
				w.T.Errorf("%s: %s, decided %v, restarted %v, not about %v", pin, e.State, e.Decided, e.Restarted, again)
			}
		})
	}
}
