// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// history and usage report what Nomad's clients ran, across a restart of the agent and for jobs
// that Nomad no longer keeps. simulate can simulate these jobs.
func testHistory(t *testing.T, b *bed) {
	b.stopAgent()
	b.config += "retries = 0\n" + fmt.Sprintf("history {\n  database = %q\n}\n", filepath.Join(t.TempDir(), "history.db"))
	b.startAgent("nomad-pal")
	done, fails, stopped := gang("done", 2, 2), gang("fails", 1, 2), gang("halted", 2, 1)
	done.seconds, done.meta = 2, `pal_class = "A"`
	fails.script, fails.meta = "exit 3", `pal_class = "C"`
	fails.groups[0].extra = "restart {\n      attempts = 0\n      mode     = \"fail\"\n    }"
	fails.extra = "reschedule {\n    attempts = 0\n    unlimited = false\n  }\n"
	for _, j := range []job{done, fails, stopped} {
		b.run(j.hcl())
	}
	b.untilSays("history -job=halted -columns=job,state", "running")
	b.stopAgent()
	b.deregister("halted", false)
	b.startAgent("nomad-pal") // runs that ended while it was down are recorded
	b.untilSays("history -job=halted -columns=job,state", "stopped")
	b.until("the stopped run has ended", func() string {
		if out, _ := b.pal("history", "-job=halted", "-json"); !strings.Contains(out, `"ended"`) {
			return out
		}
		return ""
	})
	b.untilSays("history -job=done -columns=job,state", "complete")
	b.untilSays("history -state=failed -columns=job,class,state", "fails")
	want := 0.0
	for _, id := range []string{"done", "fails", "halted"} {
		allocs, _, err := b.API().Jobs().Allocations(id, true, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range allocs {
			want += gpuHours(t, b, a)
		}
	}
	b.purge("done", "fails", "halted")
	out, code := b.pal("history", "-json", "-by=class")
	var usage []struct {
		Of       []string `json:"of"`
		GPUHours float64  `json:"gpu_hours"`
		Runs     int      `json:"runs"`
	}
	if err := json.Unmarshal([]byte(out), &usage); err != nil || code != 0 {
		t.Fatalf("usage: %d %v\n%s", code, err, out)
	}
	got, classes, runs := 0.0, "", 0
	for _, u := range usage {
		got, classes, runs = got+u.GPUHours, classes+strings.Join(u.Of, "")+" ", runs+u.Runs
	}
	if math.Abs(got-want)*3600 > 1 || classes != "A C " || runs != 3 {
		t.Errorf("usage says %v GPU hours in %d runs of classes %q, Nomad's clients ran %v\n%s", got, runs, classes, want, out)
	}
	b.says("history -columns=job,state", "default/done", "default/fails", "default/halted")
	b.says("simulate -json -from-history -since=1d", `"id": "default/done@`, `"id": "default/fails@`, `"id": "default/halted@`)
}

// gpuHours are an allocation's GPU hours from its placement to the end of its task, according to
// the client's events: Nomad's FinishedAt is later, by a second on a busy machine.
func gpuHours(t *testing.T, b *bed, stub *api.AllocationListStub) float64 {
	a, _, err := b.API().Allocations().Info(stub.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	gpus := 0
	for _, r := range a.AllocatedResources.Tasks {
		for _, d := range r.Devices {
			gpus += len(d.DeviceIDs)
		}
	}
	end := a.ModifyTime
	if task := a.TaskStates["main"]; task != nil {
		for _, e := range task.Events { // an allocation killed before its start has no such event; it held its GPUs until Nomad knew of its end
			if slices.Contains([]string{api.TaskTerminated, api.TaskKilled, api.TaskNotRestarting}, e.Type) {
				end = e.Time
			}
		}
	}
	return time.Duration(end-a.CreateTime).Hours() * float64(gpus)
}
