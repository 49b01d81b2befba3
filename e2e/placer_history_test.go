// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/placer/accounting/accountingtest"
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

// TestHistoryOfHours is a part of make history-check. For the duration HISTORY_FOR, jobs start,
// end, fail and are stopped on a real Nomad, while two agents are killed, stopped and take over
// from each other, and their PostgreSQL is stopped and restarted. At the end, usage must report
// what Nomad's clients ran.
func TestHistoryOfHours(t *testing.T) {
	long, err := time.ParseDuration(os.Getenv("HISTORY_FOR"))
	if err != nil {
		t.Skip("skipped: HISTORY_FOR sets the duration (make history-check)")
	}
	server := accountingtest.StartPostgres(t)
	b := newBed(t, placerScores, cluster.Options{})
	b.config = fmt.Sprintf("retries = 0\nhigh_availability {\n  enabled = true\n  lock_ttl = \"10s\"\n}\nhistory {\n  database = %q\n}\n", server.Address())
	other := *b
	agents := []*bed{b, &other}
	for _, a := range agents {
		a.startAgent("nomad-pal")
	}
	const few = 8
	h := &hours{bed: b, random: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 50)), agents: agents, server: server, ends: map[string]bool{}}
	for began := time.Now(); time.Since(began) < long; {
		h.submit()
		h.disturb()
		if h.left() > few { // jobs that nobody stops may hold all GPUs
			h.stopEndless()
		}
		b.until("few jobs are left", func() string {
			if left := h.left(); left > few {
				return fmt.Sprintf("%d jobs are left", left)
			}
			return ""
		})
	}
	if h.away {
		server.Start()
	}
	h.stopEndless()
	b.until("all jobs have ended", func() string {
		if left := h.left(); left > 0 {
			return fmt.Sprintf("%d jobs are left", left)
		}
		return ""
	})
	h.compare()
}

// hours is the state of TestHistoryOfHours.
type hours struct {
	*bed
	random                  *rand.Rand
	agents                  []*bed
	server                  *accountingtest.Postgres
	away                    bool
	ends                    map[string]bool // by job: whether it ends by itself
	killed, stopped, absent int
}

func (h *hours) submit() {
	j := gang(fmt.Sprintf("run-%04d", len(h.ends)), 1+h.random.IntN(3), 1+h.random.IntN(2))
	j.meta = fmt.Sprintf("pal_class = %q", "ABCD"[h.random.IntN(4):][:1])
	ends := true
	switch h.random.IntN(4) {
	case 0: // a job that the placer has given up may stay pending
		ends = false
		j.script = "exit 3"
		j.groups[0].extra = "restart {\n      attempts = 0\n      mode     = \"fail\"\n    }"
		j.extra = "reschedule {\n    attempts = 0\n    unlimited = false\n  }\n"
	case 1: // runs until somebody stops it
		ends = false
	default:
		j.seconds = 1 + h.random.IntN(15)
	}
	h.run(j.hcl())
	h.ends[j.id] = ends
}

// disturb kills or stops an agent, stops or starts PostgreSQL, or stops jobs.
func (h *hours) disturb() {
	a := h.agents[h.random.IntN(2)]
	switch h.random.IntN(12) {
	case 0:
		h.killed++
		a.killAgent()
		a.startAgent("nomad-pal")
	case 1:
		h.stopped++
		a.stopAgent()
		a.startAgent("nomad-pal")
	case 2, 3:
		if h.away = !h.away; h.away {
			h.absent++
			h.server.Stop()
		} else {
			h.server.Start()
		}
	case 4, 5:
		h.stopEndless()
	}
}

// stopEndless stops the jobs that do not end by themselves.
func (h *hours) stopEndless() {
	for id, ends := range h.ends {
		if !ends {
			h.deregister(id, false)
			h.ends[id] = true
		}
	}
}

// left is the number of jobs that have not ended according to Nomad.
func (h *hours) left() (n int) {
	stubs, _, err := h.API().Jobs().List(nil)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, s := range stubs {
		if strings.HasPrefix(s.ID, "run-") && s.Status != "dead" {
			n++
		}
	}
	return n
}

func (h *hours) compare() {
	want, allocs := 0.0, 0
	for id := range h.ends {
		stubs, _, err := h.API().Jobs().Allocations(id, true, nil)
		if err != nil {
			h.t.Fatal(err)
		}
		for _, a := range stubs {
			want, allocs = want+gpuHours(h.t, h.bed, a), allocs+1
		}
	}
	var usage []struct {
		GPUHours float64 `json:"gpu_hours"`
		Runs     int     `json:"runs"`
	}
	h.until("all runs are in the history", func() string {
		out, _ := h.pal("history", "-json", "-by=namespace")
		if json.Unmarshal([]byte(out), &usage) != nil || len(usage) != 1 || usage[0].Runs < len(h.ends) {
			return fmt.Sprintf("of %d runs: %s", len(h.ends), out)
		}
		return ""
	})
	got := usage[0]
	h.t.Logf("%d runs, %d allocations, %.4f GPU hours; the history has %d runs and %.4f GPU hours; agents were killed %d times and stopped %d times, PostgreSQL was away %d times",
		len(h.ends), allocs, want, got.Runs, got.GPUHours, h.killed, h.stopped, h.absent)
	if rounding := 1 + 0.002*float64(2*allocs); math.Abs(got.GPUHours-want)*3600 > rounding || got.Runs != len(h.ends) {
		h.t.Errorf("usage reports %v GPU hours in %d runs, Nomad's clients ran %v in %d", got.GPUHours, got.Runs, want, len(h.ends))
	}
}
