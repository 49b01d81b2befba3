// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// workers returns a state with a job of n members of one GPU, and a function that adds members.
func workers(kind string, members int) (*cluster.State, *api.Job, func(id, client string) *cluster.Alloc) {
	gpu, one := uint64(1), uint64(1)
	task := api.NewTask("work", "raw_exec").Require(&api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &gpu}}})
	job := api.NewBatchJob("j", "j", "global", 50).AddTaskGroup(api.NewTaskGroup("workers", members).AddTask(task))
	job.Type = &kind
	cluster.Canonicalize(job)
	job.Version, job.JobModifyIndex = &one, &one
	s := cluster.NewState()
	s.PutJob(job)
	return s, job, func(id, client string) *cluster.Alloc {
		return &cluster.Alloc{ID: id, Job: cluster.KeyOf(job), Group: "workers", Name: "j." + id, Client: client, Desired: api.AllocDesiredStatusRun, Version: &one, CreateIndex: 2, ModifyIndex: 2}
	}
}

// A failed member that Nomad restarts after a delay is not said to be fetching its image, and
// neither is one that waits until the member that it replaces has ended.
func TestRestartingMembers(t *testing.T) {
	s, job, member := workers(api.JobTypeBatch, 3)
	for id, restarts := range map[string]uint64{"a": 1, "b": 0} {
		a := member(id, api.AllocClientStatusPending)
		a.Tasks = map[string]*api.TaskState{"work": {State: "pending", Restarts: restarts}}
		s.PutAlloc(a)
	}
	for id, next := range map[string]string{"c": "", "old": "c"} {
		a := member(id, api.AllocClientStatusPending)
		a.Name, a.Next = "j.c", next
		if id == "old" {
			a.Client, a.Desired = api.AllocClientStatusRunning, api.AllocDesiredStatusStop
		}
		s.PutAlloc(a)
	}
	const want = "0 of 3 members run, 1 ended and now restarting (restart block), 1 placed but waiting for old members to end (kill_timeout), 1 placed and pending"
	if got := membersSay(s, gang.Observe(s, job)).String(); !strings.HasPrefix(got, want) {
		t.Error(got)
	}
}

// A job ends when its last task ends, also in the history, and not when Nomad learns of that.
func TestOutcomeEndsWithItsTasks(t *testing.T) {
	s, job, member := workers(api.JobTypeBatch, 1)
	a := member("a", api.AllocClientStatusComplete)
	a.CreateTime, a.ModifyTime = time.Unix(100, 0).UnixNano(), time.Unix(500, 0).UnixNano()
	a.Tasks = map[string]*api.TaskState{"work": {Events: []*api.TaskEvent{{Type: api.TaskStarted, Time: time.Unix(110, 0).UnixNano()}, {Type: api.TaskTerminated, Time: time.Unix(200, 0).UnixNano()}}}}
	s.PutAlloc(a)
	if o := OutcomeOf(&model.Model{State: s}, gang.Observe(s, job)); !o.At.Equal(time.Unix(200, 0)) {
		t.Errorf("ended at %v", o.At)
	}
}

// Members of groups without GPUs do not belong to the gang: their outcome is not reported.
func TestGroupsWithoutGPUs(t *testing.T) {
	s, job, member := workers(api.JobTypeBatch, 1)
	job.AddTaskGroup(api.NewTaskGroup("logs", 2).AddTask(api.NewTask("log", "raw_exec")))
	cluster.Canonicalize(job)
	s.PutJob(job)
	for id, client := range map[string]string{"a": api.AllocClientStatusComplete, "b": api.AllocClientStatusFailed} {
		a := member(id, client)
		a.Group, a.Name = "logs", "j.logs["+id+"]"
		s.PutAlloc(a)
	}
	s.PutAlloc(member("w", api.AllocClientStatusRunning))
	if got := membersSay(s, gang.Observe(s, job)).String(); got != "its member runs" {
		t.Error(got)
	}
	if last := lastAllocs(s, cluster.KeyOf(job), job); len(last) != 1 || last["j.w"] == nil {
		t.Errorf("%d members", len(last))
	}
}

// Members that Nomad preempted are shown as preempted until others replace them.
func TestPreemptedMembers(t *testing.T) {
	s, job, member := workers(api.JobTypeBatch, 3)
	for id, client := range map[string]string{"a": api.AllocClientStatusRunning, "b": api.AllocClientStatusComplete, "c": api.AllocClientStatusRunning} {
		a := member(id, client)
		if id != "a" {
			a.Desired = api.AllocDesiredStatusEvict
		}
		s.PutAlloc(a)
	}
	if got := membersSay(s, gang.Observe(s, job)).String(); got != "1 of 3 members run, 2 preempted by Nomad for jobs with a higher priority" {
		t.Error(got)
	}
	s.PutAlloc(member("d", api.AllocClientStatusRunning))
	s.PutAlloc(member("e", api.AllocClientStatusRunning))
	st := gang.Observe(s, job)
	st.Nomad = palapi.Running
	if got := membersLack(s, st); !got.IsZero() {
		t.Errorf("status says of members that all run: %s", got)
	}
	if got := membersSay(s, gang.Observe(s, job)).String(); got != "3 of 3 members run" {
		t.Error(got)
	}
}

// Explain says which members are missing and why.
func TestMissingMembers(t *testing.T) {
	s, job, member := workers(api.JobTypeService, 7)
	for n, change := range []func(*cluster.Alloc){
		func(*cluster.Alloc) {},
		func(a *cluster.Alloc) {
			exit := &api.TaskEvent{Type: api.TaskTerminated, ExitCode: 3, Details: map[string]string{"exit_code": "3"}}
			a.Client = api.AllocClientStatusFailed
			a.Tasks = map[string]*api.TaskState{"work": {State: "dead", Failed: true, Events: []*api.TaskEvent{exit}}}
		},
		func(a *cluster.Alloc) {
			a.Client, a.Desired = api.AllocClientStatusComplete, api.AllocDesiredStatusEvict
		},
		func(a *cluster.Alloc) {
			a.Client, a.Desired = api.AllocClientStatusComplete, api.AllocDesiredStatusStop
		},
		func(a *cluster.Alloc) {
			a.Client, a.Desired = api.AllocClientStatusComplete, api.AllocDesiredStatusStop
		},
		func(a *cluster.Alloc) { // from the time when the count was larger
			a.Client, a.Name = api.AllocClientStatusFailed, "j.workers[7]"
		},
	} {
		a := member(fmt.Sprint(n), api.AllocClientStatusRunning)
		a.Name, a.ModifyTime = fmt.Sprintf("j.workers[%d]", n), time.Date(2026, 11, 24, 7, 0, n, 0, time.UTC).UnixNano()
		change(a)
		s.PutAlloc(a)
	}
	tracked := &model.Tracked{}
	tracked.Observed = gang.Observe(s, job)
	got := strings.Join(texts(missing(&model.Model{State: s}, tracked)), "\n")
	const want = `member workers[1] has been missing since 2026-11-24 07:00:01 UTC: task "work" ended with exit code 3
member workers[2] has been missing since 2026-11-24 07:00:02 UTC: Nomad preempted the member
member workers[3] has been missing since 2026-11-24 07:00:03 UTC: the member was stopped (node drain?)
1 other member is missing`
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// texts are reasons in words.
func texts(rs []reason.Reason) (out []string) {
	for _, r := range rs {
		out = append(out, r.String())
	}
	return out
}
