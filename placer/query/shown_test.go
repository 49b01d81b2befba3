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
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A job that cannot start in the present state has its own state for that, in the placer's status
// and in a snapshot. It is listed after the waiting jobs, and delays none.
func TestTrueStates(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(2, 4)
		p := w.StartPlacer()
		w.Submit(bed.Gang{Name: "huge", Members: 10, GPUs: 8})
		w.Submit(bed.Gang{Name: "wide", Members: 1, GPUs: 5})
		w.Submit(bed.Gang{Name: "hungry", Change: func(j *api.Job) {
			memory := 1 << 30
			j.TaskGroups[0].Tasks[0].Resources.MemoryMB = &memory
		}})
		w.Submit(bed.Gang{Name: "docker", Change: func(j *api.Job) { j.TaskGroups[0].Tasks[0].Driver = "docker" }})
		w.Submit(bed.Gang{Name: "mistaken", Meta: map[string]string{"pal_class": "Z"}})
		w.Submit(bed.Gang{Name: "broken", Members: 2, Change: func(j *api.Job) {
			j.TaskGroups[0].Tasks[0].Config["args"] = []string{"-c", "sleep 1; [ $NOMAD_ALLOC_INDEX = 0 ] && exit 3; sleep infinity"}
		}})
		w.RunFor(2 * time.Minute)
		w.Submit(bed.Gang{Name: "alone", Reschedules: 1, Runs: time.Second, Exit: 3})
		w.RunFor(2 * time.Minute)
		w.Submit(bed.Gang{Name: "runs", Members: 2, GPUs: 4, Runs: time.Hour})
		w.ExpectRunning("runs", 10*time.Second)
		w.Submit(bed.Gang{Name: "foreign", Members: 1, GPUs: 1, Ungated: true})
		w.Submit(bed.Gang{Name: "waits", Members: 2, GPUs: 4})
		w.RunFor(3 * time.Second)
		want := map[string]string{
			"huge":     "unschedulable 0: needs 80 GPUs; the cluster has 8 that match: only 4 GPUs of one model (2 of 2 nodes)",
			"wide":     `unschedulable 0: each member of group "workers" needs 5 GPUs of one model on one node; no node has that many: only 4 GPUs of one model (2 of 2 nodes)`,
			"hungry":   `unschedulable 0: no node could run group "workers", even when idle: nodes have less than 1073741824 MB of memory (2 of 2 nodes)`,
			"docker":   "unschedulable 0: needs 1 GPU; the cluster has none that match: missing drivers: docker (2 of 2 nodes)",
			"mistaken": `rejected 0: meta pal_class = "Z" of the job: application class "Z" is unknown; it must be one of A, B, C, D`,
			"broken":   `failed 0: given up after 3 tries: task "work" ended with exit code 3; fix the job and run it again`,
			"runs":     "running 0: ",
			"waits":    "waiting 1: needs 8 GPUs; none is free",
		}
		for from, jobs := range map[string][]palapi.JobStatus{"status": p.Status().Jobs, "snapshot": snapshot(w).Jobs()} {
			got := map[string]string{}
			for _, j := range jobs {
				got[j.Job] = fmt.Sprintf("%s %d: %s", j.State, j.Position, j.Reason.String())
			}
			for job, text := range want {
				if got[job] != text {
					t.Errorf("%s: %s is %q, want %q", from, job, got[job], text)
				}
			}
		}
		s := snapshot(w)
		for _, j := range s.Jobs() {
			if e, err := s.Explain(t.Context(), cluster.JobKey{Namespace: "default", ID: j.Job}); err != nil || e.State != j.State {
				t.Errorf("%s is %s in the queue; explain: %s, %q, %v", j.Job, j.State, e.State, e.Reason.String(), err)
			}
		}
		for job, phase := range map[string]palapi.State{"huge": palapi.Unschedulable, "mistaken": palapi.Rejected, "broken": palapi.Failed, "waits": palapi.Waiting} {
			e, err := s.Explain(t.Context(), cluster.JobKey{Namespace: "default", ID: job})
			if err != nil || e.State != phase {
				t.Errorf("explain %s: %+v, %v, want %s", job, e, err, phase)
			}
		}
		e, err := s.Explain(t.Context(), cluster.JobKey{Namespace: "default", ID: "broken"})
		if err != nil {
			t.Fatal(err)
		}
		tries := map[int]string{}
		for _, f := range e.Failures {
			if f.ExitCode == 3 {
				tries[f.Try] = f.Node + " " + strings.Join(f.GPUs, " ")
			}
			if f.Node == "" || len(f.GPUs) == 0 || f.Alloc == "" {
				t.Errorf("failure %+v", f)
			}
		}
		if len(tries) != 3 || tries[1] == tries[2] || tries[2] == tries[3] {
			t.Errorf("tries %v of %+v, want three on different GPUs", tries, e.Failures)
		}
		planned := bed.Gang{Name: "planned", Members: 20, GPUs: 4}.Job()
		cluster.Canonicalize(planned)
		if e, err := s.Plan(t.Context(), planned); err != nil || e.State != palapi.Unschedulable {
			t.Errorf("plan: %+v, %v", e, err)
		}
	})
}

// Explain says why no placer could manage the job, and does not say that the placer will run it.
func TestNativeOnEveryNode(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "daemon", Ungated: true, Change: func(j *api.Job) { j.Type = new(api.JobTypeSysbatch) }})
		w.RunFor(5 * time.Second)
		e, err := snapshot(w).Explain(w.T.Context(), cluster.JobKey{Namespace: "default", ID: "daemon"})
		if err != nil || !strings.HasSuffix(e.Reason.String(), "a sysbatch job runs on every node, so nomad-pal has nothing to choose") || e.Reason.Kind != reason.NotOurs {
			w.T.Errorf("%+v, %v", e, err)
		}
	})
}

// For a service that updates with canaries, plan does not say that Nomad restarts it in place.
func TestPlanOfCanaries(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		g := bed.Gang{Name: "api", Members: 2, Service: true, Change: func(j *api.Job) {
			j.TaskGroups[0].Update = &api.UpdateStrategy{Canary: new(1)}
		}}
		w.Submit(g)
		w.ExpectRunning("api", 10*time.Second)
		job := g.Job()
		cluster.Canonicalize(job)
		const want = "runs on 2 GPUs and would keep them; if its tasks change, Nomad first places the canaries, on additional GPUs"
		if e, err := snapshot(w).Plan(w.T.Context(), job); err != nil || e.Reason.String() != want {
			w.T.Errorf("%+v, %v", e, err)
		}
	})
}

// snapshot returns the cluster in the active placer's view.
func snapshot(w *bed.World) *query.Snapshot {
	w.T.Helper()
	s := w.Picture()
	if s == nil {
		w.T.Fatal("no placer is active")
	}
	return s
}

// Explain shows that wrong estimates of its namespace count against a job.
func TestExplainsTrust(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) {
		c.Queue.FairShare, c.Queue.Tenants = true, map[string]queue.Tenant{"default": {Weight: 2}}
	}}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(1, 4)
		w.StartPlacer()
		for i := range 4 {
			w.Submit(bed.Gang{Name: fmt.Sprint("bold-", i), Runs: 10 * time.Minute, Meta: map[string]string{"pal_duration": "1m"}})
		}
		w.RunFor(12 * time.Minute)
		w.Submit(bed.Gang{Name: "runs", GPUs: 4, Runs: time.Hour})
		w.ExpectRunning("runs", 10*time.Second)
		w.Submit(bed.Gang{Name: "next", GPUs: 4, Meta: map[string]string{"pal_duration": "1m"}})
		w.RunFor(2 * time.Minute) // until the placer has stored what it learned
		e := explained(w, "next")
		for _, want := range []string{"pal_duration = 1m counts as 10m, because jobs of namespace default have run 10 times as long as estimated"} {
			if !strings.Contains(e.Note, want) {
				t.Errorf("note %q lacks %q", e.Note, want)
			}
		}
	})
}

// A job that Nomad has placed in part stays managed by Nomad, even if its author runs it again with
// the gate. Explain says so, how the placer can take it over, and what the missing members wait for.
func TestNativeInPart(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "a", Ungated: true, Members: 2, GPUs: 3})
		w.RunFor(5 * time.Second)
		k := cluster.JobKey{Namespace: "default", ID: "a"}
		if err := w.Edit(nomadtest.Key(k), func(j *api.Job) { *j = *rewrite.Gate(j) }); err != nil {
			w.T.Fatal(err)
		}
		w.RunFor(5 * time.Second)
		s := snapshot(w)
		const in = "1 of 2 members"
		e, err := s.Explain(w.T.Context(), k)
		if want := "managed by Nomad alone on 3 GPUs, " + in + "; the job has no gate, so nomad-pal leaves it alone (to add a gate, stop the job first, because nomad-pal removes a gate from a running job); Nomad has no room for group \"workers\": "; err != nil || e.State != palapi.Native || !strings.HasPrefix(e.Reason.String(), want) {
			w.T.Errorf("%+v, %v", e, err)
		}
		if jobs := s.Jobs(); len(jobs) != 1 || jobs[0].Reason.String() != "Nomad alone has placed "+in {
			w.T.Errorf("%+v", jobs)
		}
	})
}
