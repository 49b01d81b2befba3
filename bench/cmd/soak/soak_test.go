// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/bench/command"
	"github.com/nomad-pal/nomad-pal/bench/process"
)

func TestGrowth(t *testing.T) {
	t.Parallel()
	if rise, sigmas := growth([]float64{1, 3, 5, 7}); rise != 6 || !math.IsInf(sigmas, 1) {
		t.Errorf("a line rises by %v (%v standard errors), want 6", rise, sigmas)
	}
	// By hand: slope 0.9, squared residuals 0.7, standard error √(0.7/2/5).
	if rise, sigmas := growth([]float64{1, 2, 2, 4}); math.Abs(rise-2.7) > 1e-9 || math.Abs(sigmas-3.4017) > 0.001 {
		t.Errorf("rises by %v (%v standard errors), want 2.7 (3.40)", rise, sigmas)
	}
}

// A leak is found. A heap that fills, a heap that grows and shrinks, and flat noise are not
// reported.
func TestSteady(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		at   func(i int, noise float64) float64
		want bool
	}{
		{"leak", func(i int, n float64) float64 { return 30 + 0.3*float64(i) + n }, true},
		{"flat", func(_ int, n float64) float64 { return 30 + n }, false},
		{"fills at first", func(i int, n float64) float64 { return 30 - 15*math.Exp(-float64(i)/5) + n }, false},
		{"breathes", func(i int, n float64) float64 { return 30 + 5*math.Sin(float64(i)/3) + n }, false},
		{"slow", func(i int, n float64) float64 { return 30 + 0.02*float64(i) + n/10 }, false},
		{"nothing", func(int, float64) float64 { return 0 }, false},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		var ys []float64
		for i := range 60 {
			ys = append(ys, c.at(i, r.NormFloat64()))
		}
		if got := steady("memory", ys); got != "" != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	if got := steady("memory", []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}); got != "" {
		t.Errorf("a few checks prove: %s", got)
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	placer, nomad := newWorld(), newWorld()
	placer.holder = map[string]string{"g1": "default/a", "g2": "default/a", "g3": "default/b"}
	nomad.holder = map[string]string{"g1": "default/a", "g2": "default/b", "g4": "default/b"}
	placer.phase = map[string]string{"same": "waiting", "starts": "starting", "gone": "stopping", "runs": "running"}
	nomad.phase = map[string]string{"same": "waiting", "starts": "running", "runs": "waiting", "unknown": "running"}
	got := differences(placer, nomad, metrics{Jobs: map[string]int{"waiting": 3}})
	want := map[string]string{
		"gpu g2": `placer: "default/a", Nomad: "default/b"`, "gpu g3": `placer: "default/b", Nomad: ""`, "gpu g4": `placer: "", Nomad: "default/b"`,
		"job gone": `placer: "stopping", Nomad: ""`, "job runs": `placer: "running", Nomad: "waiting"`, "job unknown": `placer: "", Nomad: "running"`,
		"metrics": "the placer counts 3 waiting jobs, but Nomad counts 2",
	}
	if !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

func TestBoth(t *testing.T) {
	t.Parallel()
	got := both(map[string]string{"b": "1", "a": "2", "c": "3"}, map[string]string{"a": "other", "b": "1"})
	if want := []string{"a: 2", "b: 1"}; !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

// serve answers paths with JSON. A func is called for each request, so its answers may differ.
func serve(t *testing.T, answers map[string]any) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := answers[r.URL.Path]
		if f, changes := a.(func() any); changes {
			a = f()
		}
		if !ok {
			http.NotFound(w, r)
			return
		}
		if err := json.NewEncoder(w).Encode(a); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// alloc is an allocation of a job with GPUs, as in a list.
func alloc(job, client string, gpus ...string) *api.AllocationListStub {
	return &api.AllocationListStub{JobID: job, ClientStatus: client, AllocatedResources: &api.AllocatedResources{
		Tasks: map[string]*api.AllocatedTaskResources{"rank": {Devices: []*api.AllocatedDeviceResource{{DeviceIDs: gpus}}}}}}
}

// The two sides according to their APIs. Nomad gives GPU x to two jobs.
func TestCompare(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	glances := 0
	placer := serve(t, map[string]any{
		"/v1/gpus": func() any {
			if glances++; glances > 2 { // believed and compare read it once each
				cancel()
			}
			return []map[string]any{{"id": "g", "job": "default/a", "healthy": true}, {"id": "x", "job": "default/b"}, {"id": "free", "healthy": true}}
		},
		"/v1/queue":   []map[string]any{{"namespace": "default", "job": "a", "state": "running"}, {"namespace": "default", "job": "b", "state": "running"}, {"namespace": "default", "job": "w", "state": "waiting"}},
		"/v1/metrics": map[string]any{"leader": 1, "jobs": map[string]int{"waiting": 1}},
	})
	nomad := serve(t, map[string]any{
		"/v1/jobs": []api.JobListStub{{ID: "a", Status: "running"}, {ID: "b", Status: "running"}, {ID: "w", Status: "pending"}, {ID: "done", Status: "dead"}, {ID: "ends", Status: "running", Stop: true}},
		"/v1/allocations": []*api.AllocationListStub{alloc("a", "running", "g"), alloc("a", "complete", "free"),
			alloc("a", "unknown", "x"), alloc("b", "running", "x")},
	})
	b, _, err := believed(t.Context(), placer)
	if err != nil || !b.unhealthy["x"] || b.unhealthy["g"] {
		t.Fatalf("believed %+v, %v", b, err)
	}
	client, err := api.NewClient(&api.Config{Address: nomad})
	if err != nil {
		t.Fatal(err)
	}
	drift, seen, _, err := compare(ctx, placer, client)
	if want := []string{"twice x: two allocations hold it"}; !cmp.Equal(both(drift, drift), want) {
		t.Errorf("%v: %s", err, cmp.Diff(want, both(drift, drift)))
	}
	if len(seen.holder) != 2 || seen.waiting() != 1 {
		t.Errorf("saw %+v", seen)
	}
}

// A difference that is gone at the second comparison does not count as drift.
func TestCompareSettles(t *testing.T) {
	t.Parallel()
	glances := 0
	placer := serve(t, map[string]any{
		"/v1/gpus": func() any {
			if glances++; glances == 1 {
				return []map[string]any{{"id": "g", "job": "default/a"}}
			}
			return []map[string]any{{"id": "g"}}
		},
		"/v1/queue": []any{}, "/v1/metrics": map[string]any{},
	})
	client, err := api.NewClient(&api.Config{Address: serve(t, map[string]any{"/v1/jobs": []any{}, "/v1/allocations": []any{}})})
	if err != nil {
		t.Fatal(err)
	}
	if drift, _, _, err := compare(t.Context(), placer, client); err != nil || len(drift) > 0 || glances != 2 {
		t.Errorf("drift %v after %d glances, %v", drift, glances, err)
	}
}

// The workload offers the requested load within the duration, and is the same each time.
func TestWorkload(t *testing.T) {
	t.Parallel()
	o := options{Options: command.Options{Seed: 3, Nodes: 8}, load: 0.7, duration: 4 * time.Hour, longest: 30 * time.Second}
	jobs := o.workload()
	work := 0.0
	for _, j := range jobs {
		work += j.Work().Seconds() * float64(j.GPUs()) * locality
		if j.GPUs() > 32 || j.Submit > o.duration {
			t.Fatalf("job %+v", j)
		}
	}
	if load := work / (32 * o.duration.Seconds()); math.Abs(load-0.7) > 0.07 {
		t.Errorf("offered load %.2f with %d jobs, want 0.7", load, len(jobs))
	}
	if !cmp.Equal(jobs, o.workload()) {
		t.Error("the second call returned another workload")
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	var r report
	for i := range 40 {
		l := look{PlacerPID: 2, Placer: process.Usage{RSSMB: 30, Threads: 8, Files: 10 + i}, PluginRSSMB: 20}
		if i < 10 { // an earlier process, which was killed
			l.PlacerPID, l.Placer.RSSMB = 1, 5
		}
		r.Looks = append(r.Looks, l)
	}
	r.judge()
	if r.Passed || len(r.Failures) != 1 || !strings.HasPrefix(r.Failures[0], "the placer's open files grew") {
		t.Errorf("passed %v, failures %q", r.Passed, r.Failures)
	}
	path := filepath.Join(t.TempDir(), "new", "soak.json")
	if err := r.write(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), `"passed": false`) {
		t.Errorf("%v: %s", err, text)
	}
}
