// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// seen is an allocation as Nomad lists it.
func seen(job string, index int, client string, modified uint64, gpus ...string) *api.AllocationListStub {
	return &api.AllocationListStub{
		ID: fmt.Sprintf("%s-%d-%d", job, index, modified), JobID: job, Name: fmt.Sprintf("%s.workers[%d]", job, index),
		DesiredStatus: "run", ClientStatus: client, ModifyIndex: modified,
		AllocatedResources: &api.AllocatedResources{Tasks: map[string]*api.AllocatedTaskResources{"main": {Devices: []*api.AllocatedDeviceResource{{DeviceIDs: gpus}}}}},
	}
}

func stopping(a *api.AllocationListStub) *api.AllocationListStub {
	a.DesiredStatus = "stop"
	return a
}

func lost(a *api.AllocationListStub) *api.AllocationListStub {
	a.DesiredDescription = lostWithNode
	return stopping(a)
}

// received are allocations that a client received again after it was told to end
// them.
func received(a *api.AllocationListStub) *api.AllocationListStub {
	a.TaskStates = map[string]*api.TaskState{"main": {Events: []*api.TaskEvent{{Type: api.TaskReceived}, {Type: api.TaskStarted}, {Type: api.TaskKilling}, {Type: api.TaskReceived}}}}
	return a
}

// The observer reports each kind of violation, and nothing else.
func TestChaosObserver(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	jobs := []*api.JobListStub{{ID: "a", JobModifyIndex: 10}, {ID: "b", JobModifyIndex: 10}}
	for _, c := range []struct {
		name   string
		allocs []*api.AllocationListStub
		want   []string // prefixes, without the time
	}{
		{"whole", []*api.AllocationListStub{seen("a", 0, "running", 11, "g1"), seen("a", 1, "running", 11, "g2")}, nil},
		{"one done", []*api.AllocationListStub{seen("a", 0, "complete", 12, "g1"), seen("a", 1, "running", 11, "g1")}, nil},
		{"done before", []*api.AllocationListStub{seen("a", 0, "complete", 9, "g1"), seen("a", 1, "running", 11, "g2")}, []string{"gang a: 1 of 2 members run"}},
		{"one lost", []*api.AllocationListStub{seen("a", 0, "lost", 12, "g1"), seen("a", 1, "running", 11, "g2")}, []string{"gang a: 1 of 2 members run"}},
		{"one not started", []*api.AllocationListStub{seen("a", 0, "pending", 12, "g1"), seen("a", 1, "running", 11, "g2")}, []string{"gang a: 1 of 2 members run"}},
		{"none", []*api.AllocationListStub{seen("a", 0, "lost", 12, "g1"), seen("a", 1, "failed", 11, "g2")}, nil},
		{
			"twice", []*api.AllocationListStub{seen("b", 0, "running", 11, "g1"), seen("a", 0, "pending", 12, "g2", "g1"), seen("a", 1, "running", 13, "g3")},
			[]string{"GPU g1 was given to b.workers[0]", "GPU g1 was given to b.workers[0]", "gang a: 1 of 2 members run"},
		},
		{"updated", []*api.AllocationListStub{seen("a", 0, "running", 11, "g1"), seen("a", 1, "running", 11, "g2"), stopping(seen("a", 0, "running", 9, "g1"))}, nil},
		{
			"came back with its node", []*api.AllocationListStub{lost(seen("b", 0, "running", 9, "g1")), seen("a", 0, "running", 12, "g1"), seen("a", 1, "running", 12, "g2")},
			[]string{"GPU g1 was given to b.workers[0]", "GPU g1 was given to b.workers[0]"},
		},
		{"came back with its node over pins from before", []*api.AllocationListStub{lost(seen("b", 0, "running", 11, "g1")), seen("a", 0, "running", 12, "g1"), seen("a", 1, "running", 12, "g2")}, nil},
		{"came back with its node and has not started", []*api.AllocationListStub{lost(seen("b", 0, "pending", 9, "g1")), seen("a", 0, "running", 12, "g1"), seen("a", 1, "running", 12, "g2")}, nil},
		{"taken up again", []*api.AllocationListStub{received(seen("b", 0, "pending", 11, "g1")), seen("a", 0, "running", 12, "g1"), seen("a", 1, "running", 12, "g2")}, nil},
		{"taken up again and not started", []*api.AllocationListStub{received(seen("a", 0, "running", 11, "g1"))}, nil},
		{"came back under a job without a gate", []*api.AllocationListStub{lost(seen("b", 0, "running", 11, "g1")), seen("chaos-0003-native", 0, "running", 12, "g1")}, nil},
		{
			"taken from one that stops", []*api.AllocationListStub{stopping(seen("b", 0, "running", 11, "g1")), seen("a", 0, "running", 12, "g1"), seen("a", 1, "running", 12, "g2")},
			[]string{"GPU g1 was given to b.workers[0]", "GPU g1 was given to b.workers[0]"},
		},
	} {
		e := newObserver(func(...any) {})
		e.expect("a", 2)
		e.look(start, jobs, c.allocs)
		e.look(start.Add(repairTime+time.Second), jobs, c.allocs)
		var got []string
		for i, w := range e.wrongs() {
			w = w[len("15:04:05 "):]
			if i < len(c.want) && strings.HasPrefix(w, c.want[i]) {
				w = c.want[i]
			}
			got = append(got, w)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

// An allocation that has ended no longer holds its GPUs, even if a client starts it again.
func TestChaosObserverTakenUpAgain(t *testing.T) {
	t.Parallel()
	e := newObserver(func(...any) {})
	for _, client := range []string{"running", "complete", "pending"} {
		allocs := []*api.AllocationListStub{seen("b", 0, client, 11, "g1")}
		allocs[0].ID = "b"
		if client != "running" {
			allocs = append(allocs, seen("a", 0, "running", 12, "g1"))
		}
		e.look(time.Now(), nil, allocs)
	}
	if len(e.wrongs()) > 0 {
		t.Error(e.wrongs())
	}
}

// A gang that was complete in between gets another minute. A gang that its author stopped does
// not count.
func TestChaosObserverForgets(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	half := []*api.AllocationListStub{seen("a", 0, "running", 11, "g1")}
	whole := append([]*api.AllocationListStub{seen("a", 1, "running", 11, "g2")}, half...)
	e := newObserver(func(...any) {})
	e.expect("a", 2)
	for i, step := range []struct {
		allocs []*api.AllocationListStub
		stop   bool
	}{{half, false}, {whole, false}, {half, false}, {half, true}, {half, true}} {
		e.look(start.Add(time.Duration(i)*(repairTime-time.Second)), []*api.JobListStub{{ID: "a", JobModifyIndex: 10, Stop: step.stop}}, step.allocs)
	}
	if len(e.wrongs()) > 0 {
		t.Error(e.wrongs())
	}
}

// Members of a stopped job have completed if they ended before they were told to
// stop.
func TestChaosStanding(t *testing.T) {
	t.Parallel()
	after := func(index uint64, events ...string) *api.AllocationListStub {
		a := stopping(seen("a", 0, "complete", index, "g1"))
		s := &api.TaskState{}
		for _, e := range events {
			s.Events = append(s.Events, &api.TaskEvent{Type: e})
		}
		a.TaskStates = map[string]*api.TaskState{"main": s}
		return a
	}
	for _, c := range []struct {
		name string
		a    *api.AllocationListStub
		stop bool
		want int
	}{
		{"ended", after(9, api.TaskStarted, api.TaskTerminated), true, 1},
		{"ended, then asked to", after(9, api.TaskStarted, api.TaskTerminated, api.TaskKilling), true, 1},
		{"asked to", after(9, api.TaskStarted, api.TaskKilling, api.TaskTerminated, api.TaskKilled), true, 0},
		{"asked to before it began", after(9, api.TaskKilling), true, 0},
		{"asked to in its second try", after(9, api.TaskStarted, api.TaskTerminated, api.TaskRestarting, api.TaskStarted, api.TaskKilling), true, 0},
		{"of a job that goes on", after(9, api.TaskStarted, api.TaskTerminated), false, 0},
		{"of a job whose node is drained", after(11, api.TaskStarted, api.TaskTerminated), false, 1},
		{"asked to, of a job whose node is drained", after(11, api.TaskStarted, api.TaskKilling, api.TaskTerminated), false, 0},
	} {
		if done, _ := standing(&api.JobListStub{ID: "a", JobModifyIndex: 10, Stop: c.stop}, []*api.AllocationListStub{c.a}); done != c.want {
			t.Errorf("%s: %d done, want %d", c.name, done, c.want)
		}
	}
}

func TestChaosRecords(t *testing.T) {
	t.Parallel()
	got := records([]string{"nomad-pal/agent", "nomad-pal/failures", "nomad-pal/decisions/default/a", "nomad-pal/lock", "nomad-pal/profile/0000"})
	if d := cmp.Diff([]string{"nomad-pal/decisions/default/a"}, got); d != "" {
		t.Errorf("left over (-want +got):\n%s", d)
	}
}

// A process with the mark is a stray unless it is known, or exactly one that a client
// forgot.
func TestChaosStrays(t *testing.T) {
	t.Parallel()
	mark := fmt.Sprintf("CHAOS_STRAYS=%d", os.Getpid())
	cmd := exec.Command("sleep", "60")
	cmd.Env = []string{mark}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	// Linux shows the environment of a process a moment after Start has returned.
	patience.Eventually(t, "its environment shows", func() bool { return len(strays("/nowhere", mark, nil, nil)) > 0 })
	if got := strays("/nowhere", mark, nil, map[process]string{{cmd.Process.Pid, "of another start"}: "forgotten"}); len(got) != 1 || !strings.Contains(got[0], "sleep 60") {
		t.Errorf("strays %q", got)
	}
	if got := strays("/nowhere", mark, map[int]bool{cmd.Process.Pid: true}, nil); len(got) > 0 {
		t.Errorf("strays %q", got)
	}
	if got := strays("/nowhere", mark, nil, map[process]string{{cmd.Process.Pid, began(cmd.Process.Pid)}: "forgotten"}); len(got) > 0 {
		t.Errorf("strays %q", got)
	}
}

// A member that ended by itself while its client was down was not killed, even if the client cannot
// restore its task afterwards and kills it.
func TestChaosKilled(t *testing.T) {
	t.Parallel()
	const notRestored = "Failed Restoring Task"
	for _, c := range []struct {
		events []string
		want   bool
	}{
		{[]string{api.TaskStarted, api.TaskTerminated}, false},
		{[]string{api.TaskStarted, api.TaskTerminated, api.TaskKilling}, false},
		{[]string{api.TaskStarted, api.TaskTerminated, notRestored, api.TaskKilling}, false},
		{[]string{api.TaskStarted, api.TaskKilling, api.TaskTerminated}, true},
		{[]string{api.TaskStarted, api.TaskTerminated, api.TaskStarted, api.TaskKilling}, true},
		{[]string{api.TaskReceived, api.TaskKilling}, true},
		{[]string{api.TaskReceived}, true}, // lost with its node before it started
	} {
		var events []*api.TaskEvent
		for _, e := range c.events {
			events = append(events, &api.TaskEvent{Type: e})
		}
		a := &api.AllocationListStub{TaskStates: map[string]*api.TaskState{"main": {Events: events}}}
		if got := killed(a); got != c.want {
			t.Errorf("%v: killed: %v", c.events, got)
		}
	}
}
