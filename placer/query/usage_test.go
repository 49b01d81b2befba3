// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// note returns the notes of a job's explanation.
func note(w *bed.World, k cluster.JobKey) string {
	w.T.Helper()
	e, err := snapshot(w).Explain(w.T.Context(), k)
	if err != nil {
		w.T.Fatal(err)
	}
	return e.Note
}

// A namespace's past usage counts against it, even if another placer measured it and none of its
// jobs runs.
func TestFairShareOutlivesThePlacer(t *testing.T) {
	for _, end := range []string{"stop", "kill"} {
		t.Run(end, func(t *testing.T) {
			bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) { c.Queue.FairShare = true }}, func(w *bed.World) {
				w.AddNodes(1, 4)
				first := w.StartPlacer()
				w.Submit(bed.Gang{Name: "long", Namespace: "research", GPUs: 4, Runs: 10 * time.Hour})
				if w.RunFor(10*time.Hour + 30*time.Second); end == "stop" {
					first.Stop() // Stop stores the usage since it was last stored
				} else {
					w.RunFor(10 * time.Minute)
					first.Kill()
				}
				w.Submit(bed.Gang{Name: "busy", Namespace: "other", GPUs: 4, Runs: time.Minute})
				w.StartPlacer()
				w.RunFor(20 * time.Second)
				w.Submit(bed.Gang{Name: "again", Namespace: "research", GPUs: 4, Runs: time.Hour})
				w.RunFor(10 * time.Second)
				w.Submit(bed.Gang{Name: "first", Namespace: "ops", GPUs: 4, Runs: time.Hour})
				w.RunFor(10 * time.Second)
				if use := snapshot(w).Tenants(func(ns string) bool { return ns == "research" }); len(use) != 1 || use[0].GPUHours < 39 || use[0].GPUHours > 40 {
					w.T.Errorf("research has used %+v, want 39 to 40 GPU hours", use)
				}
				w.RunFor(time.Minute)
				if held := w.GPUs(nomadtest.Key{Namespace: "ops", ID: "first"}); len(held) != 4 {
					w.T.Errorf("the tenant that has used less holds %d GPUs", len(held))
				}
			})
		})
	}
}

// Nomad starts jobs without the gate even beyond a limit. They count in what their tenant holds and
// uses, and are shown as jobs without the gate.
func TestUngatedJobsCount(t *testing.T) {
	none := 0
	bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) {
		c.Queue.FairShare = true
		c.Queue.Tenants = map[string]queue.Tenant{"research": {Quota: 4, BorrowingLimit: &none, MaxGPUsPerUser: 7}}
	}}, func(w *bed.World) {
		w.AddNodes(3, 4)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "gated", Namespace: "research", GPUs: 1, Runs: 10 * time.Hour})
		w.RunFor(time.Minute)
		w.Submit(bed.Gang{Name: "past-the-queue", Namespace: "research", GPUs: 4, Ungated: true, Runs: 10 * time.Hour, Meta: map[string]string{"pal_user": "ada"}})
		w.RunFor(time.Hour)
		w.Submit(bed.Gang{Name: "next", Namespace: "research", GPUs: 1})
		w.RunFor(time.Minute)
		use := snapshot(w).Tenants(func(string) bool { return true })[0]
		if use.GPUs != 5 || use.Ungated != 4 || use.GPUHours < 5 || use.GPUHours > 5.2 {
			w.T.Errorf("the tenant has %+v", use)
		}
		if want := []queue.UserUse{{User: "(none)", GPUs: 1, Jobs: 1}, {User: "ada", GPUs: 4, Jobs: 1}}; !cmp.Equal(use.Users, want) {
			w.T.Errorf("users: %s", cmp.Diff(want, use.Users))
		}
	})
}

// Lent quota is reclaimed by stopping gangs that allow it.
func TestReclaim(t *testing.T) {
	limit := 4
	bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) {
		c.Queue.Tenants = map[string]queue.Tenant{"lab/research": {Quota: 4}, "lab/ops": {Quota: 4, BorrowingLimit: &limit}}
	}}, func(w *bed.World) {
		w.AddNodes(2, 4)
		w.StartPlacer()
		may := map[string]string{"pal_preempt": "true"}
		w.Submit(bed.Gang{Name: "borrows-1", Namespace: "ops", GPUs: 4, Runs: 10 * time.Hour, Meta: may})
		w.Submit(bed.Gang{Name: "borrows-2", Namespace: "ops", GPUs: 4, Runs: 10 * time.Hour, Meta: may})
		w.RunFor(10 * time.Minute)
		w.Submit(bed.Gang{Name: "third", Namespace: "ops", GPUs: 1})
		w.RunFor(10 * time.Second)
		if use := snapshot(w).Tenants(func(string) bool { return true }); len(use) != 2 || use[1].Tenant != "lab/ops" || use[1].GPUs != 8 || use[1].Borrowed() != 4 {
			w.T.Errorf("tenants %+v", use)
		}
		w.Submit(bed.Gang{Name: "mine", Namespace: "research", GPUs: 4, Runs: time.Hour})
		w.RunFor(time.Minute)
		if held := w.GPUs(nomadtest.Key{Namespace: "research", ID: "mine"}); len(held) != 4 {
			w.T.Errorf("a gang within quota holds %d GPUs:\n%s", len(held), w.Log())
		}
		why := map[string]int{}
		for _, name := range []string{"borrows-1", "borrows-2"} {
			e, err := snapshot(w).Explain(w.T.Context(), cluster.JobKey{Namespace: "ops", ID: name})
			if err != nil {
				w.T.Fatal(err)
			}
			why[string(e.State)+": "+e.StoppedWhy.String()]++
		}
		if stopped := why["waiting: the job makes room for another job"]; stopped == 0 || stopped+why["running: "] != 2 {
			w.T.Errorf("explained as %v", why)
		}
		var names []string
		for _, u := range snapshot(w).Tenants(func(ns string) bool { return ns == "ops" }) {
			names = append(names, u.Tenant+" "+strings.Join(u.Namespaces, ","))
		}
		if got := strings.Join(names, "; "); got != "lab ops; lab/ops ops" {
			w.T.Errorf("who sees ops only is told of tenants %s", got)
		}
	})
}

// A job waits while it would exceed its tenant's limit: queue and explain show the tenant, its GPUs
// and its limit, and name no nodes or other jobs as the cause. The limit may belong to a parent
// tenant.
func TestAtLimit(t *testing.T) {
	none := 0
	for name, tenants := range map[string]map[string]queue.Tenant{
		"default": {"default": {Quota: 6, BorrowingLimit: &none}},
		"lab":     {"lab": {Quota: 6, BorrowingLimit: &none}, "lab/default": {}},
	} {
		t.Run(name, func(t *testing.T) {
			bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) { c.Queue.Tenants = tenants }}, func(w *bed.World) {
				w.AddNodes(2, 4)
				w.StartPlacer()
				w.Submit(bed.Gang{Name: "runs", GPUs: 4, Runs: time.Hour})
				w.ExpectRunning("runs", 10*time.Second)
				w.Submit(bed.Gang{Name: "waits", GPUs: 4, Runs: time.Hour})
				w.RunFor(10 * time.Second)
				s, want := snapshot(w), "needs 4 GPUs; tenant "+name+" holds 4 and may hold at most 6 (quota and borrowing_limit)"
				e, err := s.Explain(w.T.Context(), cluster.JobKey(bed.Key("waits")))
				if err != nil {
					w.T.Fatal(err)
				}
				said := map[string]string{"explain": e.Reason.String(), "queue": shown(w, "waits").Reason.String()}
				if diff := cmp.Diff(map[string]string{"explain": want, "queue": want}, said); diff != "" {
					w.T.Error(diff)
				}
				w.Submit(bed.Gang{Name: "natives", Ungated: true, Priority: 70})
				w.RunFor(5 * time.Second)
				if j := shown(w, "natives"); j.Priority != 70 {
					w.T.Errorf("a job that Nomad places has priority %d", j.Priority)
				}
				if len(e.Obstacles) > 0 || e.Holders != nil || len(e.Remedies) != 1 || !strings.Contains(e.Remedies[0].String(), "when other jobs of the tenant end") {
					w.T.Errorf("explain blames %+v, %+v, and advises %v", e.Obstacles, e.Holders, e.Remedies)
				}
			})
		})
	}
}

// A job that requests more GPUs than its tenant's limit never starts, even with free GPUs: queue
// and explain say so, and what to do.
func TestBeyondLimit(t *testing.T) {
	none := 0
	bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) {
		c.Queue.Tenants = map[string]queue.Tenant{"default": {Quota: 4, BorrowingLimit: &none}}
	}}, func(w *bed.World) {
		w.AddNodes(2, 4)
		p := w.StartPlacer()
		w.Submit(bed.Gang{Name: "greedy", Members: 2, GPUs: 4})
		w.RunFor(3 * time.Second)
		s := snapshot(w)
		const why = "needs 8 GPUs; the job's tenant may hold at most 4"
		for from, js := range map[string][]palapi.JobStatus{"status": p.Status().Jobs, "snapshot": s.Jobs()} {
			if len(js) != 1 || js[0].State != palapi.Unschedulable || js[0].Position != 0 || !strings.Contains(js[0].Reason.String(), why) {
				w.T.Errorf("%s: %+v", from, js)
			}
		}
		e, err := s.Explain(w.T.Context(), cluster.JobKey(bed.Key("greedy")))
		if err != nil || e.State != palapi.Unschedulable || !strings.Contains(e.Reason.String(), why) || !e.StartFrom.IsZero() || len(e.Remedies) != 1 || !strings.Contains(e.Remedies[0].String(), "at most 4 GPUs") {
			w.T.Errorf("explain: %v, %+v", err, e)
		}
	})
}

// A job waits while it would exceed its user's limit of GPUs or jobs. Explain shows the user, his
// use and his limit, and other waiting jobs go on. Callers who may not list all namespaces of the
// tenant do not see its users.
func TestUserAtLimit(t *testing.T) {
	for name, c := range map[string]struct {
		tenant queue.Tenant
		want   string
	}{
		"gpus": {queue.Tenant{MaxGPUsPerUser: 3}, "needs 2 GPUs; user ada holds 2 in tenant all and may hold at most 3 (max_gpus_per_user)"},
		"jobs": {queue.Tenant{MaxJobsPerUser: 1}, "user ada runs 1 job in tenant all and may run at most 1 (max_jobs_per_user)"},
	} {
		t.Run(name, func(t *testing.T) {
			c.tenant.Namespaces = []string{"*"}
			bed.Run(t, bed.Options{Seed: 1, Placer: func(m *model.Config) { m.Queue.Tenants = map[string]queue.Tenant{"all": c.tenant} }}, func(w *bed.World) {
				w.AddNodes(2, 4)
				w.StartPlacer()
				ada, bob := map[string]string{"pal_user": "ada"}, map[string]string{"pal_user": "bob"}
				w.Submit(bed.Gang{Name: "runs", Namespace: "ops", GPUs: 2, Runs: time.Hour, Meta: ada})
				w.RunFor(10 * time.Second)
				w.Submit(bed.Gang{Name: "waits", GPUs: 2, Runs: time.Hour, Meta: ada})
				w.Submit(bed.Gang{Name: "other", GPUs: 2, Runs: time.Hour, Meta: bob})
				w.RunFor(10 * time.Second)
				w.ExpectRunning("other", 10*time.Second)
				s := snapshot(w)
				e, err := s.Explain(w.T.Context(), cluster.JobKey(bed.Key("waits")))
				if err != nil {
					w.T.Fatal(err)
				}
				if got := e.Reason.String(); got != c.want {
					w.T.Errorf("it waits for\n%s, want\n%s", got, c.want)
				}
				if len(e.Remedies) != 1 || !strings.Contains(e.Remedies[0].String(), "limit of user ada") {
					w.T.Errorf("remedies %v", e.Remedies)
				}
				all := s.Tenants(func(string) bool { return true })[0].Users
				want := []queue.UserUse{{User: "ada", GPUs: 2, Jobs: 1}, {User: "bob", GPUs: 2, Jobs: 1}}
				if !slices.Equal(all, want) {
					w.T.Errorf("users have %v, want %v", all, want)
				}
				if some := s.Tenants(func(ns string) bool { return ns == "ops" })[0].Users; some != nil {
					w.T.Errorf("who may not list all namespaces is told of %v", some)
				}
			})
		})
	}
}
