// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nomad-pal/nomad-pal/placer/store"
)

// A held job does not start even if its GPUs are free, its author registers it again, or another
// agent takes over. It starts when the hold is lifted.
func TestHold(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	train := c.job("default", "train", 4)
	for _, job := range []string{c.job("default", "fills", 4), c.job("default", "more", 4), train} {
		c.must("run", "-detach", job)
	}
	says := func(want string, args ...string) {
		t.Helper()
		c.until(want, func() bool {
			code, out, _ := c.does(args...)
			return code == 0 && strings.Contains(out, want)
		})
	}
	says("runs on 4 GPUs", "explain", "more")
	code, out, said := c.does("hold", "-reason", "data is mended", "train")
	if code != 0 || !strings.HasPrefix(out, "Held default/train: if it waits, it does not start; if it runs, it keeps running\nTo see its state: nomad-pal explain train\n") {
		t.Fatalf("%d %s%s", code, out, said)
	}
	says("held by ", "explain", "train")
	says("UTC: data is mended (to lift the hold: nomad-pal hold -lift <job>)", "queue")
	says("= To lift the hold: nomad-pal hold -lift train\n", "explain", "train")
	c.must("cancel", "fills")
	says("4 free", "status")
	if code, out, said := c.does("run", "-detach", train); code != 0 { // its author registers it again
		t.Fatal(out, said)
	}
	if _, out, said := c.does("explain", "train"); !strings.Contains(out, "held by ") {
		t.Errorf("%s%s", out, said)
	}
	// A hold belongs to the job's name, so plan and run report that the new version would wait.
	if code, out, said := c.does("plan", train); code != 0 || !strings.Contains(out, "train would wait: held by ") || !strings.Contains(out, "= To lift the hold: nomad-pal hold -lift train\n") {
		t.Errorf("plan: %d %s%s", code, out, said)
	}
	c.says(0, "Warning: train would wait: held by ", "run", "-detach", train)
	c.says(1, "give at least one job; see nomad-pal hold -help", "hold")
	for args, want := range map[string]string{
		"hold none":              "Error: no job \"none\" in namespace \"default\"\nnomad-pal status lists",
		"requeue trian":          "Error: no job \"trian\" in namespace \"default\" (did you mean \"train\"?)",
		"priority trian 3":       "Error: no job \"trian\" in namespace \"default\" (did you mean \"train\"?)",
		"hold -namespace=no any": "Error: no namespace \"no\"",
	} {
		c.says(1, want, strings.Fields(args)...)
	}
	c.says(0, "Lifted the hold on default/train", "hold", "-lift", "train")
	says("runs on 4 GPUs", "explain", "train")
	is, err := store.In(c.client("")).Controls().Read(t.Context())
	if err != nil || len(is) != 0 {
		t.Errorf("%v is still stored: %v", is, err)
	}
}

// A requeued job is stopped and starts again, or waits if it is held.
func TestRequeue(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	c.must("run", c.job("default", "train", 4))
	allocs := func() (ids []string) {
		as, _, err := c.client("").API().Jobs().Allocations("train", true, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range as {
			ids = append(ids, a.ID)
		}
		return ids
	}
	before := len(allocs())
	c.says(0, "Requeued default/train\n", "requeue", "train")
	c.until("the job runs again", func() bool {
		_, out, _ := c.does("explain", "train")
		return strings.Contains(out, "runs on 4 GPUs") && len(allocs()) > before
	})
	c.must("requeue", "-hold", "train")
	c.until("the job is held", func() bool {
		_, out, _ := c.does("explain", "train")
		return strings.Contains(out, "has been waiting again for ") && strings.Contains(out, "held by ")
	})
	c.says(0, "Lifted the hold on default/train\n", "hold", "-lift", "train")
	c.until("the job runs once more", func() bool { _, out, _ := c.does("explain", "train"); return strings.Contains(out, "runs on 4 GPUs") })
	c.must("cancel", "train")
	c.until("the job is stopped", func() bool { _, out, _ := c.does("explain", "train"); return strings.Contains(out, "was stopped") })
	c.says(1, "not in nomad-pal's queue any more, because it has ended: run it again", "requeue", "train")
}

// A hold that comes while Nomad registers the job's start cannot stop the start. The command reports
// this, and the job runs.
func TestHoldTooLate(t *testing.T) {
	c := newCluster(t)
	begun, release := make(chan struct{}), make(chan struct{})
	// After the first registration, the agent's registrations only check the caller's rights.
	var registrations atomic.Int32
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && r.URL.Path == "/v1/jobs" && registrations.Add(1) == 1 {
			close(begun)
			<-release
		}
		c.nomad.ServeHTTP(w, r)
	}))
	t.Cleanup(between.Close)
	direct := c.url
	c.url = between.URL
	c.agent("", "http {\n  bind_port = 0\n}\n")
	c.url = direct
	c.must("run", "-detach", c.job("default", "train", 4))
	<-begun
	code, out, said := c.does("hold", "train")
	close(release)
	if code != 0 || !strings.HasPrefix(out, "Held default/train") || !strings.Contains(out, "default/train was about to start, and the hold is too late to stop this\n") {
		t.Fatalf("%d %s%s", code, out, said)
	}
	c.until("the job runs", func() bool { _, out, _ := c.does("explain", "train"); return strings.Contains(out, "runs on 4 GPUs") })
}

// An array and a job that Nomad places without the placer never wait, so the command fails. Lifting a
// hold succeeds, because an older agent accepted holds on such jobs.
func TestControlOfOtherJobs(t *testing.T) {
	c := newCluster(t)
	c.agent("", atAnyPort)
	for name, text := range map[string]string{
		"everywhere": strings.Replace(jobText("default", "everywhere", 1), `"batch"`, `"system"`, 1),
		"array":      strings.Replace(jobText("default", "array", 1), "  group ", "  parameterized {}\n\n  group ", 1),
	} {
		if code, out, said := c.does("run", "-detach", c.written(name+".nomad.hcl", text)); code != 0 || name == "array" && !strings.HasSuffix(out, "\nTo start a run: nomad job dispatch array\n") {
			t.Fatal(out, said)
		}
	}
	for args, want := range map[string]string{
		"hold everywhere":        "not in nomad-pal's queue: a system job runs on every node",
		"priority everywhere 70": "not in nomad-pal's queue: a system job runs on every node",
		"requeue array":          "not in nomad-pal's queue: the job is parameterized; nomad-pal status -all lists its runs",
	} {
		c.says(1, want, strings.Fields(args)...)
	}
	for _, args := range []string{"hold -lift everywhere", "priority array 0"} {
		if code, out, said := c.does(strings.Fields(args)...); code != 0 {
			t.Errorf("%s: %d %s%s", args, code, out, said)
		}
	}
}

// Another priority applies in the queue only, and not in the jobspec; 0
// restores the jobspec's.
func TestPriority(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	for _, name := range []string{"fills", "more"} {
		c.must("run", c.job("default", name, 4))
	}
	for _, name := range []string{"first", "second"} {
		c.must("run", "-detach", c.job("default", name, 4))
	}
	order := func(a, b string) func() bool {
		return func() bool {
			_, out, _ := c.does("queue")
			i, j := strings.Index(out, a), strings.Index(out, b)
			return i >= 0 && j >= 0 && i < j
		}
	}
	c.until("both jobs are in the queue", order("first", "second"))
	c.says(0, "Changed the priority of default/second to 80\n", "priority", "second", "80")
	c.until("second goes first", order("second", "first"))
	for job, want := range map[string]string{
		"second": "priority 80 (set with nomad-pal priority; the jobspec has 50)",
	} {
		if _, out, said := c.does("explain", "-verbose", job); !strings.Contains(out, want) {
			t.Errorf("%s: want %q in\n%s%s", job, want, out, said)
		}
	}
	if job, _, err := c.client("").API().Jobs().Info("second", nil); err != nil || *job.Priority != 50 {
		t.Errorf("its jobspec has priority %d: %v", *job.Priority, err)
	}
	c.says(0, "Restored the jobspec's priority of default/second\n", "priority", "second", "0")
	c.until("first goes first", order("first", "second"))
	for _, n := range []string{"high", "-5"} {
		c.says(1, "is not a number", "priority", "second", n)
	}
}

// pal_user says whose a job is. The file sets it, or NOMAD_PAL_USER, which never changes the user
// of a job that Nomad has. -mine shows and stops the user's own jobs.
func TestMine(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	t.Setenv(userVariable, "anna")
	train := c.job("default", "train", 2)
	c.must("run", train)
	t.Setenv(userVariable, "ben")
	for _, job := range []string{train, c.job("default", "tune", 2)} {
		c.must("run", job)
	}
	job, _, err := c.client("").API().Jobs().Info("train", nil)
	if err != nil || job.Meta["pal_user"] != "anna" {
		t.Errorf("%v %v", job.Meta, err)
	}
	if _, out, said := c.does("status", "-mine"); !strings.Contains(out, "tune") || strings.Contains(out, "train") || !strings.Contains(out, "ben") {
		t.Errorf("%s%s", out, said)
	}
	if code, out, said := c.does("cancel", "-mine"); code != 0 || out != "Stopped default/tune\n" {
		t.Errorf("%d %s%s", code, out, said)
	}
	for _, wrong := range [][]string{{"cancel", "-mine", "train"}, {"cancel", "-mine", "-namespace=*"}} {
		c.says(1, "-mine", wrong...)
	}
	c.until("nothing is left", func() bool {
		_, out, _ := c.does("cancel", "-mine")
		return out == "Nothing to stop in namespace \"default\".\n"
	})
	for _, args := range [][]string{{"status", "-mine"}, {"status", "-namespace=default"}} {
		if _, out, said := c.does(args...); strings.Contains(out, "No jobs with GPUs.") {
			t.Errorf("anna's runs: %v: %s%s", args, out, said)
		}
	}
	if code, out, said := c.does("run", "-detach", c.job("default", "huge", 9)); code != 0 { // as ben
		t.Fatal(out, said)
	}
	t.Setenv(userVariable, "anna")
	const none = "No job in the queue matches. Other jobs: 1 job can never start.\n"
	c.until(none, func() bool { _, out, _ := c.does("queue", "-mine"); return out == none })
	c.says(1, "no job is given; give one or use -mine", "cancel")
}

// plannedJob is a jobspec with additional lines for the job, its group and its task's
// resources.
func plannedJob(id, ofJob, ofGroup, device string) string {
	return fmt.Sprintf("job %q {\n  type = \"batch\"\n%s  group \"g\" {\n%s    task \"t\" {\n      driver = \"raw_exec\"\n      config {\n        command = \"true\"\n      }\n      resources {\n%s      }\n    }\n  }\n}\n", id, ofJob, ofGroup, device)
}

func gpuBlock(name, in string) string { return fmt.Sprintf("device %q {\n%s}\n", name, in) }

// An array and its runs belong to the user that the array names. status shows the user's array in
// one line. cancel also stops the array itself, so that the array starts no further runs.
func TestMyArray(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	t.Setenv(userVariable, "anna")
	if code, out, said := c.reads(plannedJob("array", "parameterized {}\n", "", gpuBlock("nvidia/gpu", "")), "run", "-detach", "-"); code != 0 {
		t.Fatal(out, said)
	}
	for range 2 {
		if _, _, err := c.client("").API().Jobs().Dispatch("array", nil, nil, "", nil); err != nil {
			t.Fatal(err)
		}
	}
	c.until("one line", func() bool {
		_, out, _ := c.does("status", "-mine")
		return strings.Contains(out, "of 2") && !strings.Contains(out, "dispatch-")
	})
	c.says(0, "Stopped default/array\nStopped default/array/dispatch-", "cancel", "-mine")
}

// plan applies the limits of the user that run would write into the job.
func TestPlanOfUser(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\ntenant \"default\" {\n  max_gpus_per_user = 4\n}\n")
	t.Setenv(userVariable, "anna")
	c.must("run", c.job("default", "train", 4))
	const waits, starts = 0, 1
	for user, want := range map[string]int{"anna": waits, "ben": starts, "": starts} {
		t.Setenv(userVariable, user)
		if code, out, said := c.does("plan", c.job("default", "tune", 4)); code != want {
			t.Errorf("as %q: %d %s%s", user, code, out, said)
		}
	}
}

// An operator puts GPUs in quarantine, and everybody can read why. The agent obeys at once, and
// stops when the quarantine is lifted.
func TestOperatorsQuarantine(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	code, out, said := c.does("quarantine", "-reason", "fan is replaced", "GPU-1-3")
	if code != 0 || out != "In quarantine: GPU-1-3\n" {
		t.Fatalf("%d %s%s", code, out, said)
	}
	if _, out, said := c.does("explain", "GPU-1-3"); !strings.Contains(out, "is in quarantine until it is lifted") || !strings.Contains(out, "fan is replaced") {
		t.Errorf("%s%s", out, said)
	}
	if _, out, _ := c.does("quarantine"); !strings.Contains(out, "it is lifted") || !strings.Contains(out, "fan is replaced") {
		t.Error(out)
	}
	if _, out, _ := c.does("gpus", "-node", "node-1"); !strings.Contains(out, "quarantined: fan is replaced") {
		t.Error(out)
	}
	if _, out, _ := c.does("plan", c.job("default", "all", 8)); strings.Contains(out, "would start now") {
		t.Error(out)
	}
	c.must("quarantine", "-lift", "GPU-1-3")
	for args, want := range map[string]string{
		"quarantine -reason x":                 "give at least one GPU",
		"quarantine -reason x GPU-":            `"GPU-" matches 8 GPUs`,
		"quarantine -reason x -lift GPU-1-3":   "-reason cannot be combined with -lift",
		"quarantine GPU-1-3":                   "GPU ids require -reason or -lift",
		"quarantine -reason= GPU-1-3":          "-reason must have 1 to 200 bytes",
		"quarantine -time 2h":                  "-time requires -reason",
		"quarantine -reason x -time y GPU-1-3": `-time "y" is not a positive duration`,
	} {
		c.says(1, want, strings.Fields(args)...)
	}
}
