// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/patience"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
	"github.com/nomad-pal/nomad-pal/placer/store"
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
	if code, out, said := c.does("release", "-all", "-now"); code != 0 || strings.TrimSpace(out) != "Released default/a\nReleased default/b" {
		t.Errorf("exit code %d\n%s%s", code, out, said)
	}
	if b, _, err := jobs.Info("b", nil); err != nil || rewrite.Gated(b) || *b.Priority != 60 {
		t.Errorf("%+v, %v: want it as its author wrote it last, without the gate", b, err)
	}
}

// starts runs a command in the background. end interrupts the command, and returns its exit code,
// output and errors.
func (c *testCluster) starts(args ...string) (end func(interrupt bool) (int, string, string)) {
	ctx, cancel := patience.Context(c.t.Context(), patience.Long)
	var out, err bytes.Buffer
	code := make(chan int, 1)
	go func() { code <- run(ctx, args, streams{strings.NewReader(""), &out, &err, false}) }()
	return func(interrupt bool) (int, string, string) {
		if interrupt {
			cancel()
		}
		defer cancel()
		return <-code, out.String(), err.String()
	}
}

// owned reports whether Nomad alone manages the job.
func (c *testCluster) owned(id string) bool {
	job := c.nomad.Job(cluster.JobKey{Namespace: "default", ID: id})
	return job != nil && !carries(job)
}

// orders returns the number of jobs about which people have given orders.
func (c *testCluster) orders() int {
	is, err := store.In(c.client("")).Controls().Read(context.Background())
	if err != nil {
		c.t.Error(err)
	}
	return len(is)
}

// release -all hands a running job over at once, and a waiting one when it fits. After Ctrl-C, the
// jobs that still wait stay in the queue, and are listed.
func TestReleaseAllWhenTheyFit(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	for _, job := range []string{c.job("default", "fills", 4), c.job("default", "more", 4), c.job("default", "train", 4), c.job("default", "last", 4)} {
		c.must("run", "-detach", job)
	}
	c.until("more runs", func() bool { _, out, _ := c.does("explain", "more"); return strings.Contains(out, "runs on 4 GPUs") })
	end := c.starts("release", "-all")
	c.until("the running jobs are handed over, and the others wait for it", func() bool { return c.owned("fills") && c.owned("more") && c.orders() >= 2 })
	if c.owned("train") || c.owned("last") {
		t.Error("a waiting job was released before it fits")
	}
	if _, out, _ := c.does("explain", "-verbose", "train"); !strings.Contains(out, "handed over to Nomad") {
		t.Errorf("explain does not tell of the release:\n%s", out)
	}
	c.must("cancel", "fills")
	c.until("train is handed over", func() bool { return c.owned("train") })
	code, out, said := end(true)
	if code != exitInterrupted || !strings.Contains(said, "1 job is left in nomad-pal's queue: default/last") {
		t.Errorf("%d\n%s%s", code, out, said)
	}
	for _, want := range []string{"Released default/fills\n", "Released default/more\n", "Ctrl-C ends this command"} {
		if !strings.Contains(out, want) {
			t.Errorf("without %q:\n%s", want, out)
		}
	}
	if is, err := store.In(c.client("")).Controls().Read(t.Context()); err != nil || is["default/last"].Release != nil || c.owned("last") {
		t.Errorf("last is still to be released: %v, %v", is, err)
	}
}

// A job that does not start before somebody does something about it is not waited for.
func TestReleaseOfJobsThatDoNotStart(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	for _, job := range []string{c.job("default", "fills", 4), c.job("default", "more", 4), c.job("default", "train", 4), c.job("default", "huge\nforged", 5)} {
		c.must("run", "-detach", job)
	}
	c.must("hold", "train")
	code, out, said := c.does("release", "-all")
	for _, want := range []string{"To lift the hold: nomad-pal hold -lift train", `default/huge\nforged: unschedulable`, "nomad-pal release -now"} {
		if !strings.Contains(strings.Join(strings.Fields(said), " "), want) {
			t.Errorf("without %q: %d\n%s%s", want, code, out, said)
		}
	}
	if code != 1 || !c.owned("fills") || !c.owned("more") || c.owned("train") || c.orders() > 3 {
		t.Errorf("%d\n%s%s", code, out, said)
	}
}

// Without an active placer, release says so, and names -now, which releases at once.
func TestReleaseWithoutAPlacer(t *testing.T) {
	c := newCluster(t)
	c.must("run", "-detach", c.job("default", "train", 4))
	if code, out, said := c.does("release", "train"); code != exitNoPlacer || !strings.Contains(said, "nomad-pal release -now") || c.owned("train") {
		t.Errorf("%d\n%s%s", code, out, said)
	}
	if code, out, said := c.does("release", "-now", "train"); code != 0 || out != "Released default/train\n" || !c.owned("train") {
		t.Errorf("%d\n%s%s", code, out, said)
	}
}

// release -all takes only the jobs that carried a gate or pins when it began.
func TestReleaseAllLeavesLaterJobs(t *testing.T) {
	c := newCluster(t)
	c.agent("", atAnyPort)
	for _, id := range []string{"fills", "more", "train"} {
		c.must("run", "-detach", c.job("default", id, 4))
	}
	end := c.starts("release", "-all")
	c.until("the running jobs are handed over", func() bool { return c.owned("fills") && c.owned("more") && c.orders() == 1 })
	c.must("run", "-detach", c.job("default", "later", 4))
	c.until("later waits", func() bool { _, out, _ := c.does("explain", "later"); return strings.Contains(out, "later has waited") })
	c.must("cancel", "fills")
	if code, out, said := end(false); code != 0 || !c.owned("train") || c.owned("later") || strings.Contains(out, "later") {
		t.Errorf("%d\n%s%s", code, out, said)
	}
}

// A release registers a new version, which Nomad deploys. So a service whose current version failed its
// deployment is not released.
func TestReleaseAfterAFailedDeployment(t *testing.T) {
	c := newCluster(t)
	jobs := c.client("").API().Jobs()
	job := api.NewServiceJob("web", "web", "global", 50).AddDatacenter("*")
	task := api.NewTask("t", "raw_exec").SetConfig("command", "sleep")
	task.Resources = &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu"}}}
	if _, _, err := jobs.Register(rewrite.Gate(job.AddTaskGroup(api.NewTaskGroup("g", 1).AddTask(task))), nil); err != nil {
		t.Fatal(err)
	}
	status := api.DeploymentStatusFailed
	failed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/job/web/deployment" {
			fmt.Fprintf(w, `{"ID": "d", "JobID": "web", "JobVersion": 0, "Status": %q}`, status)
			return
		}
		c.nomad.ServeHTTP(w, r)
	}))
	defer failed.Close()
	t.Setenv("NOMAD_ADDR", failed.URL)
	for _, args := range [][]string{{"-now", "web"}, {"-all", "-now"}, {"web"}} {
		if code, out, said := c.does(append([]string{"release"}, args...)...); code == 0 || !strings.Contains(said, "version 0 failed its deployment") {
			t.Errorf("%v: exit code %d: %s%s", args, code, out, said)
		}
	}
	if now, _, err := jobs.Info("web", nil); err != nil || !rewrite.Gated(now) {
		t.Errorf("%+v, %v: want it unchanged", now, err)
	}
	status = api.DeploymentStatusSuccessful
	c.says(0, "Released", "release", "-now", "web")
}
