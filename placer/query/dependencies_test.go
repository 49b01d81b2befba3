// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// withoutGPUs removes the GPUs of a job, as in a job that only prepares data.
func withoutGPUs(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.Devices = nil }

func reasonOf(w *bed.World, id string) string {
	w.T.Helper()
	return explained(w, id).Reason.String()
}

// The reason of a job that waits for a service says that services do not finish. If a job
// waits for several jobs, each has its reason: here one runs and one does not exist.
func TestAfterWhatNeverEnds(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "svc", Service: true, Runs: time.Hour})
		w.Submit(bed.Gang{Name: "sweep", Runs: time.Hour})
		w.Submit(bed.Gang{Name: "of-service", Meta: map[string]string{"pal_after": "svc"}})
		w.Submit(bed.Gang{Name: "of-both", Meta: map[string]string{"pal_after": "sweep,trian"}})
		w.RunFor(30 * time.Second)
		for id, want := range map[string]string{
			"of-service": "comes after default/svc (pal_after): a service job never finishes",
			"of-both":    "comes after default/sweep (pal_after): that job is running; comes after default/trian (pal_after): Nomad has no such job (purged, garbage-collected, or not yet registered?)",
		} {
			if got := reasonOf(w, id); got != want {
				w.T.Errorf("%s: %q, want %q", id, got, want)
			}
		}
	})
}

// A job starts after the jobs in pal_after have finished, with or without GPUs, and not before. The
// placer remembers that they finished even after Nomad has deleted them.
func TestAfter(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "prepare", Ungated: true, Runs: time.Minute, Change: withoutGPUs})
		w.Submit(bed.Gang{Name: "train", Runs: 3 * time.Minute})
		w.Submit(bed.Gang{Name: "report", Runs: time.Hour, Meta: map[string]string{"pal_after": "prepare,train"}})
		expect := func(want string) {
			w.T.Helper()
			if got := reasonOf(w, "report"); got != want {
				w.T.Errorf("report %q, want %q", got, want)
			}
			if len(w.GPUs(bed.Key("report"))) > 0 {
				w.T.Error("report runs")
			}
		}
		w.RunFor(30 * time.Second)
		expect("comes after default/prepare (pal_after): that job has not ended")
		w.RunFor(time.Minute)
		expect("comes after default/train (pal_after): that job is running")
		if err := w.Purge(bed.Key("prepare")); err != nil {
			w.T.Fatal(err)
		}
		w.RunFor(30 * time.Second)
		expect("comes after default/train (pal_after): that job is running")
		w.ExpectRunning("report", 2*time.Minute)
		w.RunFor(5 * time.Second)
		c, err := nomad.NewClient(w.Nomad.Config("command", ""), "")
		if err != nil {
			w.T.Fatal(err)
		}
		r, err := store.In(c).Decision(cluster.JobKey{Namespace: "default", ID: "report"}).Read(w.T.Context())
		if err != nil || !r.There || r.Of.Waited > 10*time.Second {
			w.T.Errorf("the time before the other jobs finished counts as waiting: %+v, %v", r, err)
		}
	})
}

// The placer also remembers, while a job runs, that the jobs in its pal_after have finished. The
// job may later be stopped, and edited while it waits again, when Nomad may have deleted the
// others. If one of the others has been run again, the job waits for it.
func TestAfterItRan(t *testing.T) {
	for name, again := range map[string]bool{"forgotten": false, "run again": true} {
		t.Run(name, func(t *testing.T) {
			bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) { c.Queue.Order, c.Queue.Preempt = queue.FIFO, true }}, func(w *bed.World) {
				w.AddNodes(1, 4)
				w.StartPlacer()
				prepare := bed.Gang{Name: "prepare", Ungated: true, Runs: time.Second, Change: withoutGPUs}
				w.Submit(prepare)
				report := bed.Gang{Name: "report", GPUs: 4, Runs: 10 * time.Hour, Meta: map[string]string{"pal_after": "prepare", "pal_preempt": "true"}}
				w.Submit(report)
				w.ExpectRunning("report", time.Minute)
				if err := w.Purge(bed.Key("prepare")); err != nil {
					w.T.Fatal(err)
				}
				w.RunFor(30 * time.Second)
				if again {
					prepare.Runs = time.Hour
					w.Submit(prepare)
				}
				w.RunFor(10 * time.Minute)
				w.Submit(bed.Gang{Name: "urgent", GPUs: 4, Runs: 5 * time.Minute, Priority: 90})
				w.ExpectRunning("urgent", time.Minute)
				report.Meta["pal_duration"] = "10h"
				w.Submit(report)
				w.RunFor(time.Minute)
				if got, waits := reasonOf(w, "report"), "comes after default/prepare (pal_after): that job has not ended"; (got == waits) != again {
					w.T.Errorf("report %q", got)
				}
				w.RunFor(6 * time.Minute)
				if runs := len(w.GPUs(bed.Key("report"))) == 4; runs == again {
					w.T.Errorf("it runs: %t: %s", runs, reasonOf(w, "report"))
				}
			})
		})
	}
}

// A job shows the outcome of the job that it waits for. After a failure, it starts once the other
// has been run again successfully.
func TestAfterFailure(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) { c.Retries = 0 }}, func(w *bed.World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		after := func(id string) {
			w.Submit(bed.Gang{Name: "after-" + id, Runs: time.Hour, Meta: map[string]string{"pal_after": id}})
		}
		w.Submit(bed.Gang{Name: "fails", Ungated: true, Runs: time.Second, Exit: 1, Change: withoutGPUs})
		w.Submit(bed.Gang{Name: "gpus-fail", Runs: time.Second, Exit: 1})
		w.Submit(bed.Gang{Name: "stops", Ungated: true, Runs: time.Hour, Change: withoutGPUs})
		w.Submit(bed.Gang{Name: "serves", Ungated: true, Service: true, Runs: time.Hour, Change: withoutGPUs})
		w.RunFor(10 * time.Second)
		if err := w.Stop(bed.Key("stops")); err != nil {
			w.T.Fatal(err)
		}
		for _, id := range []string{"fails", "gpus-fail", "stops", "serves", "none"} {
			after(id)
		}
		w.RunFor(time.Minute)
		for id, want := range map[string]string{
			"fails": "that job has failed; run it again", "gpus-fail": "that job has failed; run it again", "stops": "that job was stopped before it finished; run it again",
			"serves": "a service job never finishes", "none": "Nomad has no such job (purged, garbage-collected, or not yet registered?)",
		} {
			if got := reasonOf(w, "after-"+id); got != "comes after default/"+id+" (pal_after): "+want {
				w.T.Errorf("after %s: %q, want %q", id, got, want)
			}
		}
		w.Submit(bed.Gang{Name: "ends", Ungated: true, Runs: time.Second, Change: withoutGPUs})
		w.RunFor(5 * time.Second)
		if err := w.Stop(bed.Key("ends")); err != nil {
			w.T.Fatal(err)
		}
		after("ends") // the other had finished before it was stopped
		w.ExpectRunning("after-ends", 30*time.Second)
		w.Submit(bed.Gang{Name: "fails", Ungated: true, Runs: 2 * time.Second, Change: withoutGPUs})
		w.ExpectRunning("after-fails", 30*time.Second)
		for _, j := range snapshot(w).Jobs() {
			if j.Job == "after-none" && (j.State != palapi.Waiting || !strings.Contains(j.Reason.String(), "pal_after")) {
				w.T.Errorf("queue says %s, %q", j.State, j.Reason.String())
			}
		}
	})
}

// A job that may run for centuries does not stop the placer.
func TestFarTimes(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(1, 4)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "runs", GPUs: 2, Runs: 2 * time.Hour, Change: func(j *api.Job) {
			j.TaskGroups[0].MaxRunDuration = new(2540400 * time.Hour)
		}})
		w.ExpectRunning("runs", 10*time.Second)
		w.Submit(bed.Gang{Name: "waits", GPUs: 4, Runs: time.Hour, Meta: map[string]string{"pal_duration": "1h"}})
		w.ExpectRunning("waits", 3*time.Hour)
	})
}

// An unreadable variable, or a job that Nomad does not return, delays only the jobs that depend on
// it.
func TestAfterUnread(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		w.AddNodes(1, 4)
		w.Nomad.Fail("placer-1", "GET /v1/vars", nomadtest.Failed, -1)
		w.Nomad.Fail("", "GET /v1/job/hidden", nomadtest.Failed, -1)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "hidden", Ungated: true, Runs: time.Second, Change: withoutGPUs})
		w.Submit(bed.Gang{Name: "prepare", Ungated: true, Runs: time.Second, Change: withoutGPUs})
		w.Submit(bed.Gang{Name: "kept", Runs: time.Hour, Meta: map[string]string{"pal_after": "hidden"}})
		w.Submit(bed.Gang{Name: "report", Runs: time.Hour, Meta: map[string]string{"pal_after": "prepare"}})
		w.ExpectRunning("report", time.Minute)
		if got := reasonOf(w, "kept"); !strings.HasPrefix(got, "comes after default/hidden (pal_after): cannot read that job from Nomad: ") {
			w.T.Errorf("kept %q", got)
		}
	})
}

// Nomad sends an event before the change is visible: an immediate request may return the old job. A
// job must not wait forever for another that has finished or appeared in the meantime, nor because
// a request failed.
func TestAfterIsToldEarly(t *testing.T) {
	for name, disturb := range map[string]func(w *bed.World){
		"early": func(w *bed.World) { w.Nomad.SetEventFaults(nomadtest.EventFaults{Early: 1}) },
		"failed": func(w *bed.World) {
			w.Nomad.Fail("", "GET /v1/job/prepare", nomadtest.Failed, 2)
			w.Nomad.Fail("", "GET /v1/job/train", nomadtest.Failed, 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(5) {
				bed.Run(t, bed.Options{Seed: seed}, func(w *bed.World) {
					w.AddNodes(1, 4)
					w.StartPlacer()
					w.Submit(bed.Gang{Name: "report", Runs: time.Hour, Meta: map[string]string{"pal_after": "prepare,train"}})
					w.RunFor(5 * time.Second)
					disturb(w)
					w.Submit(bed.Gang{Name: "prepare", Ungated: true, Runs: 10 * time.Second, Change: withoutGPUs})
					w.RunFor(5 * time.Second)
					if got := reasonOf(w, "report"); !strings.HasPrefix(got, "comes after default/prepare (pal_after): that job has not ended") && name == "early" {
						w.T.Errorf("report %q while prepare runs", got)
					}
					w.Submit(bed.Gang{Name: "train", Runs: 10 * time.Second})
					w.ExpectRunning("report", 25*time.Second)
					if early := w.Nomad.Faults()["an event comes before its change"]; name == "early" && early == 0 {
						w.T.Error("nothing came early")
					}
				})
			}
		})
	}
}

// Plan says that a job starts only after others, whether there is room for it now or not. It
// predicts no start, because it does not know when the others will finish.
func TestPlanAfter(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(1, 4)
		p := w.StartPlacer()
		defer beating(w, "agent", p.Vitals)()
		w.Submit(bed.Gang{Name: "train", GPUs: 2, Runs: time.Hour, Meta: map[string]string{"pal_duration": "1h"}})
		w.ExpectRunning("train", 10*time.Second)
		for gpus, want := range map[int]string{
			2: "would start now if default/train had succeeded (pal_after",
			4: "needs 4 GPUs; 2 of 4 that match are free (2 allocated); the job also comes after default/train (pal_after)",
		} {
			job := bed.Gang{Name: "report", GPUs: gpus, Meta: map[string]string{"pal_after": "train"}}.Job()
			cluster.Canonicalize(job)
			e, err := snapshot(w).Plan(w.T.Context(), job)
			if err != nil || !strings.HasPrefix(e.Reason.String(), want) || !e.StartTo.IsZero() {
				t.Errorf("%d GPUs: %+v, %v", gpus, e, err)
			}
		}
		w.Submit(bed.Gang{Name: "web", Ungated: true, Service: true, Change: withoutGPUs})
		w.Submit(bed.Gang{Name: "ends", Ungated: true, Runs: time.Second, Change: withoutGPUs})
		w.Submit(bed.Gang{Name: "fails", Ungated: true, Runs: time.Second, Exit: 1, Change: withoutGPUs})
		w.RunFor(5 * time.Second)
		for after, want := range map[string]string{
			"trian": "comes after default/trian (pal_after): Nomad has no such job",
			"web":   "comes after default/web (pal_after): a service job never finishes",
			"fails": "comes after default/fails (pal_after): that job has failed; run it again",
			"ends":  "would start now if default/train and default/ends had succeeded (pal_after)",
		} {
			job := bed.Gang{Name: "report", GPUs: 2, Meta: map[string]string{"pal_after": "train," + after}}.Job()
			cluster.Canonicalize(job)
			e, err := snapshot(w).Plan(w.T.Context(), job)
			if err != nil || (e.State == palapi.Starting) != strings.HasPrefix(want, "would") || !strings.HasPrefix(e.Reason.String(), want) {
				t.Errorf("after %s: %s, %s, %v", after, e.State, e.Reason, err)
			}
		}
	})
}

// A job does not start before its pal_begin, and enters the queue at this time.
func TestBegin(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Placer: func(c *model.Config) { c.Queue.Order = "fifo" }}, func(w *bed.World) {
		w.AddNodes(1, 4)
		p := w.StartPlacer()
		defer beating(w, "agent", p.Vitals)()
		at := time.Now().Add(3 * time.Minute).UTC()
		late := bed.Gang{Name: "late", GPUs: 4, Runs: time.Hour, Meta: map[string]string{"pal_begin": at.Format(time.RFC3339)}}
		want := "the job does not start before " + reason.Moment(at) + " (pal_begin)"
		job := late.Job()
		cluster.Canonicalize(job)
		if e, err := snapshot(w).Plan(w.T.Context(), job); err != nil || e.State != palapi.Waiting || e.Reason.String() != want {
			w.T.Errorf("plan: %+v, %v", e, err)
		}
		w.Submit(late)
		w.Submit(bed.Gang{Name: "relative", Runs: time.Hour, Meta: map[string]string{"pal_begin": "2h", "pal_after": "early"}})
		w.RunFor(time.Minute)
		if got := reasonOf(w, "late"); got != want {
			w.T.Errorf("%q, want %q", got, want)
		}
		w.Submit(bed.Gang{Name: "early", GPUs: 4, Runs: 5 * time.Minute})
		w.ExpectRunning("early", 10*time.Second)
		w.RunFor(3 * time.Minute)
		if got := reasonOf(w, "relative"); !strings.HasPrefix(got, "comes after default/early (pal_after): that job is running; the job does not start before ") {
			w.T.Errorf("relative: %q", got)
		}
		w.ExpectRunning("late", 3*time.Minute)
		w.RunFor(70 * time.Minute)
		if len(w.GPUs(bed.Key("relative"))) > 0 {
			w.T.Error("relative runs before its pal_begin")
		}
		w.ExpectRunning("relative", time.Hour)
	})
}

// Nomad writes a registration before the evaluation of the job, so a job that is run again after a
// failure looks dead for a moment. In this moment, the job has not failed again.
func TestRegisteredButNotEvaluated(t *testing.T) {
	job := bed.Gang{Name: "j", Ungated: true}.Job()
	cluster.Canonicalize(job)
	job.Status, job.Version, job.ModifyIndex, job.JobModifyIndex = new("dead"), new(uint64(1)), new(uint64(7)), new(uint64(7))
	job.SubmitTime, job.CreateIndex = new(int64(1)), new(uint64(1))
	alloc := func(version int) string {
		return fmt.Sprintf(`[{"ID": "0123", "Namespace": "default", "JobID": "j", "JobVersion": %d, "Name": "j.g[0]", "TaskGroup": "g", "ClientStatus": "failed", "DesiredStatus": "run"}]`, version)
	}
	for allocs, failed := range map[string]bool{alloc(0): false, alloc(1): true, "[]": false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/allocations") {
				fmt.Fprint(w, allocs)
				return
			}
			json.NewEncoder(w).Encode(job)
		}))
		defer server.Close()
		c, err := nomad.NewClient(&api.Config{Address: server.URL}, "")
		if err != nil {
			t.Fatal(err)
		}
		of, err := query.ReadDependency(t.Context(), c, cluster.JobKey{Namespace: "default", ID: "j"}, model.Dependency{})
		if err != nil || (of.Why.Kind == reason.AheadFailed) != failed {
			t.Errorf("with allocations %s: %+v, %v", allocs, of, err)
		}
	}
}
