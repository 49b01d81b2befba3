// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A placer that writes a job between release's read and write does not stop the
// release.
func TestReleaseBesideAPlacer(t *testing.T) {
	c := newCluster(t)
	jobs := c.client("").API().Jobs()
	gated := func(id string) {
		job := api.NewBatchJob(id, id, "global", 50).AddDatacenter("*")
		task := api.NewTask("t", "raw_exec").SetConfig("command", "sleep")
		task.Resources = &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu"}}}
		if _, _, err := jobs.Register(rewrite.Gate(job.AddTaskGroup(api.NewTaskGroup("g", 1).AddTask(task))), nil); err != nil {
			t.Fatal(err)
		}
	}
	gated("a")
	gated("b")
	writes := 0
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && r.URL.Path == "/v1/jobs" {
			if writes++; writes == 2 { // the write of job b
				job, _, err := jobs.Info("b", nil)
				if err != nil {
					t.Error(err)
				}
				job.Priority = new(60)
				if _, _, err := jobs.Register(job, nil); err != nil {
					t.Error(err)
				}
			}
		}
		c.nomad.ServeHTTP(w, r)
	}))
	defer between.Close()
	t.Setenv("NOMAD_ADDR", between.URL)
	if code, out, said := c.does("release", "-all"); code != 0 || strings.TrimSpace(out) != "Released default/a\nReleased default/b" {
		t.Errorf("exit code %d\n%s%s", code, out, said)
	}
	if b, _, err := jobs.Info("b", nil); err != nil || rewrite.Gated(b) || *b.Priority != 60 {
		t.Errorf("%+v, %v: want it as its author wrote it last, without the gate", b, err)
	}
}
