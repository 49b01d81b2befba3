// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

func TestDiagnose(t *testing.T) {
	ended := func(details map[string]string) map[string]*api.TaskState {
		return map[string]*api.TaskState{"t": {Events: []*api.TaskEvent{
			{Type: api.TaskStarted}, {Type: api.TaskTerminated, Details: details},
		}}}
	}
	for _, c := range []struct {
		name   string
		alloc  nomad.Alloc
		sick   map[string]string
		cause  Cause
		reason string
	}{
		{"exit code", nomad.Alloc{Client: "failed", Tasks: ended(map[string]string{"exit_code": "3"})}, nil, User, `task "t" ended with exit code 3`},
		{"out of memory", nomad.Alloc{Client: "failed", Tasks: ended(map[string]string{"exit_code": "137", "oom_killed": "true"})}, nil, User, `task "t" ran out of memory`},
		{"node", nomad.Alloc{Client: "lost", Tasks: ended(map[string]string{"exit_code": "3"})}, nil, Infrastructure, nodeDown},
		{
			"sick GPU", nomad.Alloc{Client: "failed", Tasks: ended(map[string]string{"exit_code": "3"})}, map[string]string{"g1": "xid:79"},
			Infrastructure, "GPU g1 is unhealthy: xid:79",
		},
		{"another GPU is sick", nomad.Alloc{Client: "failed", Tasks: ended(map[string]string{"exit_code": "3"})}, map[string]string{"g2": "xid:79"}, User, `task "t" ended with exit code 3`},
		{
			"driver", nomad.Alloc{Client: "failed", Tasks: map[string]*api.TaskState{"t": {Events: []*api.TaskEvent{
				{Type: api.TaskDriverFailure, DisplayMessage: "no docker"},
			}}}}, nil, Infrastructure, `task "t": Driver Failure: no docker`,
		},
		{
			"device reserved in vain", nomad.Alloc{Client: "failed", Tasks: map[string]*api.TaskState{"t": {Events: []*api.TaskEvent{
				{Type: "Task hook failed", Message: "devices: failed to reserve device nvidia/gpu/H200: unhealthy device IDs: g1 (xid:79)"},
				{Type: api.TaskNotRestarting, DisplayMessage: "Error was unrecoverable"},
			}}}}, nil, Infrastructure, `task "t": devices: failed to reserve device nvidia/gpu/H200: unhealthy device IDs: g1 (xid:79)`,
		},
		{
			"another hook", nomad.Alloc{Client: "failed", Tasks: map[string]*api.TaskState{"t": {Events: []*api.TaskEvent{
				{Type: "Task hook failed", Message: "logmon: no g1"},
			}}}}, nil, Infrastructure, `task "t": logmon: no g1`,
		},
		{
			"the last word", nomad.Alloc{Client: "failed", Tasks: map[string]*api.TaskState{"t": {Events: []*api.TaskEvent{
				{Type: api.TaskTerminated, Details: map[string]string{"exit_code": "3"}}, {Type: api.TaskRestarting},
				{Type: api.TaskDriverFailure, DisplayMessage: "no docker"},
			}}}}, nil, Infrastructure, `task "t": Driver Failure: no docker`,
		},
		{
			"killed with another task", nomad.Alloc{Client: "failed", Tasks: map[string]*api.TaskState{
				"a": {Events: []*api.TaskEvent{{Type: api.TaskTerminated, Details: map[string]string{"exit_code": "143"}}}},
				"t": {Failed: true, Events: []*api.TaskEvent{{Type: api.TaskDriverFailure, DisplayMessage: "no docker"}}},
			}}, nil, Infrastructure, `task "t": Driver Failure: no docker`,
		},
		{
			"ended as it was killed", nomad.Alloc{Client: "failed", Tasks: map[string]*api.TaskState{"t": {Events: []*api.TaskEvent{
				{Type: api.TaskStarted}, {Type: api.TaskKilling}, {Type: api.TaskTerminated, Details: map[string]string{"exit_code": "143"}},
			}}}}, nil, Unknown, "it was being stopped",
		},
		{"nothing known", nomad.Alloc{Client: "failed"}, nil, Unknown, "nothing says why"},
	} {
		c.alloc.GPUs = []string{"g1"}
		c.alloc.CreateTime, c.alloc.ModifyTime = 0, int64(90*time.Minute)
		f := diagnose(&c.alloc, "node", c.sick)
		if f.Cause != c.cause || f.Reason != c.reason || f.GPUHours != 1.5 {
			t.Errorf("%s: %s: %s, %v GPU hours", c.name, f.Cause, f.Reason, f.GPUHours)
		}
	}
}

// Strikes double the quarantine, and are forgotten after good days.
func TestQuarantine(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h := history{}
	bad := Failure{Cause: Infrastructure, Reason: "xid:79", GPUs: []string{"g1"}, Sick: []string{"g1"}}
	var waits []time.Duration
	for range 3 {
		h.suspect(bad, nil, now)
		waits = append(waits, h.quarantine["g1"].Until.Sub(now))
		now = h.quarantine["g1"].Until
	}
	now = now.Add(5 * quarantineMost)
	h.suspect(bad, nil, now)
	waits = append(waits, h.quarantine["g1"].Until.Sub(now))
	for range 12 {
		now = h.quarantine["g1"].Until
		h.suspect(bad, nil, now)
	}
	waits = append(waits, h.quarantine["g1"].Until.Sub(now))
	want := []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute, 10 * time.Minute, 24 * time.Hour}
	if d := cmp.Diff(want, waits); d != "" {
		t.Errorf("quarantines (-want +got):\n%s", d)
	}
	// Others that fail meanwhile had been placed before: one trouble, one strike.
	before := h.quarantine["g1"]
	h.suspect(bad, nil, now.Add(time.Minute))
	if d := cmp.Diff(before, h.quarantine["g1"]); d != "" {
		t.Errorf("struck twice (-before +after):\n%s", d)
	}
	if !quarantined(h.quarantine, now)["g1"] || quarantined(h.quarantine, now.Add(25*time.Hour))["g1"] {
		t.Error("kept out too short or too long")
	}
	h.suspect(diagnose(&nomad.Alloc{Client: "lost", GPUs: []string{"g2"}}, "node", nil), nil, now)
	if _, ok := h.quarantine["g2"]; ok {
		t.Error("a GPU is blamed for its node")
	}
}

// The neighbours of a sick GPU in the same allocation are not to blame.
func TestQuarantineOfTheSickAlone(t *testing.T) {
	a := &nomad.Alloc{Client: "failed", GPUs: []string{"g1", "g2", "g3", "g4"}}
	h := history{}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h.suspect(diagnose(a, "node", map[string]string{"g2": "lost", "g3": "lost", "g9": "lost"}), nil, now)
	want := map[string]bool{"g2": true, "g3": true}
	if d := cmp.Diff(want, quarantined(h.quarantine, now)); d != "" {
		t.Errorf("kept out (-want +got):\n%s", d)
	}
}

// Of what goes wrong before a task runs, a GPU is guilty where it is named as
// unhealthy, or by the driver.
func TestQuarantineOfTheNamed(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []*api.TaskEvent
		want   []string
	}{
		{"refused", []*api.TaskEvent{{Type: "Task hook failed", Message: "devices: unhealthy device IDs: g2 (lost)"}}, []string{"g2"}},
		{"plugin gone", []*api.TaskEvent{{Type: "Task hook failed", Message: "devices: plugin is shut down"}}, nil},
		{
			"not known yet to Nomad's client", []*api.TaskEvent{{
				Type: "Task hook failed", Message: `devices: operation on unknown device(s) "nvidia/gpu/H200" ([g1 g2 g3]): failed to reserve devices`,
			}}, nil,
		},
		{"not known yet to the plugin", []*api.TaskEvent{{Type: "Task hook failed", Message: "devices: unknown device IDs: g1,g2,g3"}}, nil},
		{"another hook", []*api.TaskEvent{{Type: "Task hook failed", Message: "logmon: g3 is not it"}}, nil},
		{"set-up of the allocation", []*api.TaskEvent{{Type: api.TaskSetupFailure, DisplayMessage: "failed to setup alloc: no network"}}, nil},
		{"no image", []*api.TaskEvent{{Type: api.TaskDriverFailure, DisplayMessage: "Failed to pull image"}}, nil},
		{"driver names it", []*api.TaskEvent{{Type: api.TaskDriverFailure, DisplayMessage: "nvidia-container-cli: device error: g3: unknown device"}}, []string{"g3"}},
		{
			"refused as it was killed", []*api.TaskEvent{
				{Type: api.TaskKilling}, {Type: "Task hook failed", Message: "devices: unhealthy device IDs: g2 (lost)"},
			}, nil,
		},
	} {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		h := history{}
		a := &nomad.Alloc{Client: "failed", GPUs: []string{"g1", "g2", "g3"}, Tasks: map[string]*api.TaskState{"t": {Events: c.events}}}
		f := diagnose(a, "node", nil)
		h.failures = append(h.failures, f)
		h.suspect(f, nil, now)
		if d := cmp.Diff(c.want, slices.Sorted(maps.Keys(quarantined(h.quarantine, now)))); d != "" {
			t.Errorf("%s: kept out (-want +got):\n%s", c.name, d)
		}
	}
}

// A success between them clears the GPU.
func TestSuspectInARow(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h := history{}
	for i, job := range []string{"a", "b", "c", "d", "e"} {
		now = now.Add(time.Minute)
		f := Failure{At: now, Job: job, Cause: User, GPUs: []string{"g1"}}
		h.failures = append(h.failures, f)
		ok := map[string]time.Time{"g1": now.Add(-90 * time.Second)} // one failure before this one counts
		if i == 4 {
			ok = nil
		}
		h.suspect(f, ok, now)
		if got, want := len(h.quarantine) > 0, i == 4; got != want {
			t.Fatalf("after job %s: quarantine %v", job, h.quarantine)
		}
	}
}

// One job that fails on a GPU, or cannot be started there, says little of the
// GPU; three do.
func TestSuspectByJobs(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h := history{}
	for i, job := range []string{"a", "a", "a", "b", "c"} {
		f := Failure{At: now, Job: job, Cause: User, GPUs: []string{"g1", fmt.Sprint("other", i)}}
		if job == "b" {
			f.Cause, f.Driver = Infrastructure, true
		}
		h.failures = append(h.failures, f)
		h.suspect(f, nil, now)
		if got, want := len(h.quarantine) > 0, job == "c"; got != want {
			t.Fatalf("after job %d: quarantine %v", i, h.quarantine)
		}
	}
	if _, ok := h.quarantine["g1"]; !ok || len(h.quarantine) != 1 {
		t.Errorf("quarantine: %v", h.quarantine)
	}
}

// A gang that was taken back goes to other nodes than those that failed it, but
// for those that were down and those whose sick GPUs are kept out anyway.
func TestFailedOn(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	h := history{failures: []Failure{
		{At: now.Add(-2 * avoidFor), Namespace: "default", Job: "j", Node: "long ago", Cause: User},
		{At: now, Namespace: "other", Job: "j", Node: "of another job", Cause: User},
		{At: now, Namespace: "default", Job: "j", Node: "sick", Cause: Infrastructure, Sick: []string{"g1"}},
		{At: now, Namespace: "default", Job: "j", Node: "down", Cause: Infrastructure, Reason: nodeDown},
	}}
	k := nomad.JobKey{Namespace: "default", ID: "j"}
	if got := h.failedOn(k, now); got != nil {
		t.Errorf("avoided: %v", got)
	}
	h.failures = append(h.failures,
		Failure{At: now, Namespace: "default", Job: "j", Node: "no image", Cause: Infrastructure, Driver: true},
		Failure{At: now, Namespace: "default", Job: "j", Node: "exit 1", Cause: User})
	if d := cmp.Diff(map[string]bool{"no image": true, "exit 1": true}, h.failedOn(k, now)); d != "" {
		t.Errorf("avoided (-want +got):\n%s", d)
	}
}
