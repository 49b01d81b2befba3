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
		if code, out, said := c.does("run", "-detach", job); code != 0 {
			t.Fatal(out, said)
		}
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
	if code != 0 || !strings.HasPrefix(out, "Held default/train\nTo see its state: nomad-pal explain train\n") {
		t.Fatalf("%d %s%s", code, out, said)
	}
	says("held by ", "explain", "train")
	says("UTC: data is mended (to lift the hold: nomad-pal hold -lift <job>)", "queue")
	says("= To lift the hold: nomad-pal hold -lift train\n", "explain", "train")
	if code, out, said := c.does("cancel", "fills"); code != 0 {
		t.Fatal(out, said)
	}
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
	if code, _, said := c.does("run", "-detach", train); code != 0 || !strings.Contains(said, "Warning: train would wait: held by ") {
		t.Errorf("run: %d %s", code, said)
	}
	if code, _, said := c.does("hold"); code != 1 || !strings.Contains(said, "give at least one job; see nomad-pal hold -help") {
		t.Errorf("%d %s", code, said)
	}
	for args, want := range map[string]string{
		"hold none":              "Error: no job \"none\" in namespace \"default\"\nnomad-pal status lists",
		"requeue trian":          "Error: no job \"trian\" in namespace \"default\" (did you mean \"train\"?)",
		"priority trian 3":       "Error: no job \"trian\" in namespace \"default\" (did you mean \"train\"?)",
		"hold -namespace=no any": "Error: no namespace \"no\"",
	} {
		if code, _, said := c.does(strings.Fields(args)...); code != 1 || !strings.HasPrefix(said, want) {
			t.Errorf("%s: %d %s", args, code, said)
		}
	}
	if code, out, said := c.does("hold", "-lift", "train"); code != 0 || !strings.HasPrefix(out, "Lifted the hold on default/train") {
		t.Fatalf("%d %s%s", code, out, said)
	}
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
	if code, out, said := c.does("run", c.job("default", "train", 4)); code != 0 {
		t.Fatal(out, said)
	}
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
	if code, out, said := c.does("requeue", "train"); code != 0 || !strings.HasPrefix(out, "Requeued default/train\n") {
		t.Fatalf("%d %s%s", code, out, said)
	}
	c.until("the job runs again", func() bool {
		_, out, _ := c.does("explain", "train")
		return strings.Contains(out, "runs on 4 GPUs") && len(allocs()) > before
	})
	if code, out, said := c.does("requeue", "-hold", "train"); code != 0 {
		t.Fatalf("%d %s%s", code, out, said)
	}
	c.until("the job is held", func() bool {
		_, out, _ := c.does("explain", "train")
		return strings.Contains(out, "has been waiting again for ") && strings.Contains(out, "held by ")
	})
	if code, out, said := c.does("requeue", "train"); code != 0 || !strings.HasPrefix(out, "default/train is already waiting, so nothing was stopped\n") {
		t.Fatalf("%d %s%s", code, out, said)
	}
	if code, out, said := c.does("hold", "-lift", "train"); code != 0 || !strings.HasPrefix(out, "Lifted the hold on default/train\n") {
		t.Fatalf("%d %s%s", code, out, said)
	}
	c.until("the job runs once more", func() bool {
		_, out, _ := c.does("explain", "train")
		return strings.Contains(out, "runs on 4 GPUs")
	})
	if code, out, _ := c.does("hold", "-lift", "train"); code != 0 || !strings.HasPrefix(out, "default/train is not held, so no hold was lifted\n") {
		t.Errorf("%d %s", code, out)
	}
	if code, out, said := c.does("cancel", "train"); code != 0 {
		t.Fatalf("%d %s%s", code, out, said)
	}
	c.until("the job is stopped", func() bool {
		_, out, _ := c.does("explain", "train")
		return strings.Contains(out, "was stopped")
	})
	const want = "Error: requeueing job \"train\": the job neither runs nor waits in nomad-pal's queue: train was stopped"
	if code, out, said := c.does("requeue", "train"); code != 1 || !strings.HasPrefix(said, want) {
		t.Errorf("%d %s%s", code, out, said)
	}
}

// A hold of a running job does not stop the job. The command and explain say so, because the job
// looks like any other running job until it is requeued.
func TestHoldOfRunningJob(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	if code, out, said := c.does("run", c.job("default", "train", 4)); code != 0 {
		t.Fatal(out, said)
	}
	const held = "Held default/train, which keeps running; if it is requeued, it waits until the hold is lifted\n"
	if code, out, said := c.does("hold", "-reason", "bad data", "train"); code != 0 || !strings.HasPrefix(out, held) {
		t.Fatalf("%d %s%s", code, out, said)
	}
	c.until("explain reports the hold", func() bool {
		_, out, _ := c.does("explain", "train")
		return strings.Contains(out, "= held by ") && strings.Contains(out, "UTC: bad data (to lift the hold: nomad-pal hold -lift <job>)") &&
			strings.Contains(out, "= To lift the hold: nomad-pal hold -lift train\n")
	})
	if code, out, said := c.does("hold", "-lift", "train"); code != 0 {
		t.Fatalf("%d %s%s", code, out, said)
	}
	c.until("explain reports no hold", func() bool {
		_, out, _ := c.does("explain", "train")
		return strings.Contains(out, "runs on 4 GPUs") && !strings.Contains(out, "held by ")
	})
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
	if code, out, said := c.does("run", "-detach", c.job("default", "train", 4)); code != 0 {
		t.Fatal(out, said)
	}
	<-begun
	code, out, said := c.does("hold", "train")
	close(release)
	if code != 0 || !strings.HasPrefix(out, "Held default/train, but too late to stop the start that has begun; if the job is requeued, it waits until the hold is lifted\n") {
		t.Fatalf("%d %s%s", code, out, said)
	}
	c.until("the job runs", func() bool {
		_, out, _ := c.does("explain", "train")
		return strings.Contains(out, "runs on 4 GPUs")
	})
}

// A second hold without a reason keeps the first reason, and the command reports this. A second hold
// with a reason replaces the first.
func TestHoldAgain(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	if code, out, said := c.does("run", "-detach", c.job("default", "huge", 9)); code != 0 {
		t.Fatal(out, said)
	}
	for _, again := range []struct{ args, out, why string }{
		{"hold -reason=data huge", "Held default/huge\nTo see", "data"},
		{"hold huge", "Held default/huge\ndefault/huge was already held, and the reason stays: data\nTo see", "data"},
		{"requeue -hold huge", "Held default/huge, which was already waiting\ndefault/huge was already held, and the reason stays: data\nTo see", "data"},
		{"hold -reason=disk huge", "Held default/huge\nTo see", "disk"},
	} {
		if code, out, said := c.does(strings.Fields(again.args)...); code != 0 || !strings.HasPrefix(out, again.out) {
			t.Errorf("%s: %d %s%s", again.args, code, out, said)
		}
		is, err := store.In(c.client("")).Controls().Read(t.Context())
		if held := is["default/huge"].Held; err != nil || held == nil || held.Why != again.why {
			t.Errorf("%s: %v %v", again.args, is, err)
		}
	}
}

// A command about several jobs prints what it has done before it fails.
func TestControlOfSeveralJobs(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	if code, out, said := c.does("run", c.job("default", "train", 4)); code != 0 {
		t.Fatal(out, said)
	}
	if code, out, said := c.does("requeue", "train", "none"); code != 1 || out != "Requeued default/train\n" || !strings.HasPrefix(said, "Error: no job \"none\"") {
		t.Errorf("%d %s%s", code, out, said)
	}
}

// An array does not wait or run itself, so it cannot be held, requeued or moved in the queue. The
// error shows how to find its runs.
func TestControlOfArray(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	file := c.written("array.nomad.hcl", strings.Replace(jobText("default", "array", 1), "  group ", "  parameterized {}\n\n  group ", 1))
	if code, out, said := c.does("run", "-detach", file); code != 0 || !strings.HasSuffix(out, "\nTo start a run: nomad job dispatch array\n") {
		t.Fatal(code, out, said)
	}
	// The advice says to dispatch the array.
	if _, _, err := c.client("").API().Jobs().Dispatch("array", nil, nil, "", nil); err != nil {
		t.Fatal(err)
	}
	c.until("the run is counted", func() bool {
		_, out, _ := c.does("explain", "array")
		return strings.Contains(out, "of 1.\n") && strings.Contains(out, "\nNext = To start a run: nomad job dispatch array\n")
	})
	for _, args := range []string{"hold array", "requeue array", "priority array 70"} {
		code, out, said := c.does(strings.Fields(args)...)
		if code != 1 || out != "" || !strings.Contains(said, "never in nomad-pal's queue: the job is parameterized; nomad-pal status -all lists its runs") && !strings.Contains(said, "array does not run itself: the job is parameterized; ") {
			t.Errorf("%s: %d %s%s", args, code, out, said)
		}
	}
	for _, args := range []string{"hold -lift array", "priority array 0"} { // removes what an older agent accepted
		if code, out, said := c.does(strings.Fields(args)...); code != 0 {
			t.Errorf("%s: %d %s%s", args, code, out, said)
		}
	}
}

// A job that Nomad places without the placer cannot be held or moved in the queue, so the command
// fails.
func TestControlOfNativeJob(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	everywhere := strings.Replace(jobText("default", "everywhere", 1), `"batch"`, `"system"`, 1)
	without := strings.Replace(jobText("default", "without", 1), `device "nvidia/gpu" {`, `network {`, 1)
	without = strings.Replace(without, "count = 1", "mbits = 1", 1)
	for name, text := range map[string]string{"everywhere": everywhere, "without": without} {
		if code, out, said := c.does("run", "-detach", c.written(name+".nomad.hcl", text)); code != 0 {
			t.Fatal(out, said)
		}
	}
	for args, want := range map[string]string{
		"hold everywhere":        "never in nomad-pal's queue: a system job runs on every node",
		"priority everywhere 70": "never in nomad-pal's queue: a system job runs on every node",
		"hold without":           "never in nomad-pal's queue: the job requests no GPUs",
	} {
		if code, out, said := c.does(strings.Fields(args)...); code != 1 || !strings.Contains(said, want) {
			t.Errorf("%s: %d %s%s", args, code, out, said)
		}
	}
	// Lifting a hold succeeds, because an older agent accepted holds on such jobs.
	if code, out, said := c.does("hold", "-lift", "everywhere"); code != 0 {
		t.Errorf("%d %s%s", code, out, said)
	}
}

// Another priority applies in the queue only, and not in the jobspec; 0
// restores the jobspec's.
func TestPriority(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	for _, name := range []string{"fills", "more"} {
		if code, out, said := c.does("run", c.job("default", name, 4)); code != 0 {
			t.Fatal(out, said)
		}
	}
	for _, name := range []string{"first", "second"} {
		if code, out, said := c.does("run", "-detach", c.job("default", name, 4)); code != 0 {
			t.Fatal(out, said)
		}
	}
	order := func(a, b string) func() bool {
		return func() bool {
			_, out, _ := c.does("queue")
			i, j := strings.Index(out, a), strings.Index(out, b)
			return i >= 0 && j >= 0 && i < j
		}
	}
	c.until("both jobs are in the queue", order("first", "second"))
	if code, out, said := c.does("priority", "second", "80"); code != 0 || !strings.HasPrefix(out, "Changed the priority of default/second to 80\n") {
		t.Fatalf("%d %s%s", code, out, said)
	}
	c.until("second goes first", order("second", "first"))
	for job, want := range map[string]string{
		"second": "priority 80 (set with nomad-pal priority; the jobspec has 50)",
		"first":  "priority 50: 1 waiting job goes first because of a higher priority",
	} {
		if _, out, said := c.does("explain", "-verbose", job); !strings.Contains(out, want) {
			t.Errorf("%s: want %q in\n%s%s", job, want, out, said)
		}
	}
	if job, _, err := c.client("").API().Jobs().Info("second", nil); err != nil || *job.Priority != 50 {
		t.Errorf("its jobspec has priority %d: %v", *job.Priority, err)
	}
	if code, out, said := c.does("priority", "second", "0"); code != 0 || !strings.HasPrefix(out, "Restored the jobspec's priority of default/second\n") {
		t.Fatalf("%d %s%s", code, out, said)
	}
	c.until("first goes first", order("first", "second"))
	for _, n := range []string{"high", "-5"} {
		if code, _, said := c.does("priority", "second", n); code != 1 || !strings.Contains(said, "is not a number") {
			t.Errorf("%d %s", code, said)
		}
	}
}

// pal_user says whose a job is. The file sets it, or NOMAD_PAL_USER, which never changes the user
// of a job that Nomad has. -mine shows and stops the user's own jobs.
func TestMine(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\n")
	t.Setenv(userVariable, "nobody")
	if _, _, said := c.does("queue", "-mine"); !strings.Contains(said, "Note: no job has nobody as its user") {
		t.Error(said)
	}
	t.Setenv(userVariable, "anna")
	train := c.job("default", "train", 2)
	if code, out, said := c.does("run", train); code != 0 {
		t.Fatal(out, said)
	}
	t.Setenv(userVariable, "ben")
	for _, job := range []string{train, c.job("default", "tune", 2)} {
		if code, out, said := c.does("run", job); code != 0 {
			t.Fatal(out, said)
		}
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
		if code, _, said := c.does(wrong...); code != 1 || !strings.Contains(said, "-mine") {
			t.Errorf("%v: %d %s", wrong, code, said)
		}
	}
	if code, out, said := c.does("cancel", "-mine"); code != 0 || out != "Nothing to stop in namespace \"default\".\n" {
		t.Errorf("%d %s%s", code, out, said)
	}
	for _, args := range [][]string{{"status", "-mine"}, {"status", "-namespace=default"}} {
		if _, out, said := c.does(args...); strings.Contains(out, "No jobs with GPUs.") {
			t.Errorf("anna's runs: %v: %s%s", args, out, said)
		}
	}
	if code, out, said := c.does("run", "-detach", c.job("default", "huge", 9)); code != 0 { // as ben
		t.Fatal(out, said)
	}
	t.Setenv(userVariable, "anna")
	for _, q := range []struct{ args, want string }{
		{"queue -mine", "None of your jobs waits. Other jobs: 1 job can never start.\n"},
		{"queue -mine -state failed", "No job in the queue matches. Other jobs: 1 job can never start.\n"},
		{"queue -state failed", "No job in the queue matches. Other jobs: 1 job can never start.\n"},
	} {
		c.until(q.want, func() bool { _, out, _ := c.does(strings.Fields(q.args)...); return out == q.want })
	}
	if code, _, said := c.does("cancel"); code != 1 || !strings.Contains(said, "no job is given; give one or use -mine") {
		t.Errorf("%d %s", code, said)
	}
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
	if code, out, said := c.does("cancel", "-mine"); code != 0 || !strings.HasPrefix(out, "Stopped default/array\nStopped default/array/dispatch-") {
		t.Errorf("%d %s%s", code, out, said)
	}
}

// plan applies the limits of the user that run would write into the job.
func TestPlanOfUser(t *testing.T) {
	c := newCluster(t)
	c.agent("", "http {\n  bind_port = 0\n}\ntenant \"default\" {\n  max_gpus_per_user = 4\n}\n")
	t.Setenv(userVariable, "anna")
	if code, out, said := c.does("run", c.job("default", "train", 4)); code != 0 {
		t.Fatal(out, said)
	}
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
	if code, out, said := c.does("quarantine", "-lift", "GPU-1-3"); code != 0 {
		t.Fatal(out, said)
	}
	for args, want := range map[string]string{
		"quarantine -reason x":                 "give at least one GPU",
		"quarantine -reason x GPU-":            `"GPU-" matches 8 GPUs`,
		"quarantine -reason x -lift GPU-1-3":   "-reason cannot be combined with -lift",
		"quarantine GPU-1-3":                   "GPU ids require -reason or -lift",
		"quarantine -reason= GPU-1-3":          "-reason must have 1 to 200 bytes",
		"quarantine -time 2h":                  "-time requires -reason",
		"quarantine -reason x -time y GPU-1-3": `-time "y" is not a positive duration`,
	} {
		if code, _, said := c.does(strings.Fields(args)...); code != 1 || !strings.Contains(said, want) {
			t.Errorf("%s: %d %s", args, code, said)
		}
	}
}
