// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// workers is a state with a job of so many members of one GPU, and makes members of it.
func workers(kind string, members int) (*nomad.State, *api.Job, func(id, client string) *nomad.Alloc) {
	gpu, one := uint64(1), uint64(1)
	task := api.NewTask("work", "raw_exec").Require(&api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &gpu}}})
	job := api.NewBatchJob("j", "j", "global", 50).AddTaskGroup(api.NewTaskGroup("workers", members).AddTask(task))
	job.Type = &kind
	nomad.Canonicalize(job)
	job.Version, job.JobModifyIndex = &one, &one
	s := nomad.NewState()
	s.PutJob(job)
	return s, job, func(id, client string) *nomad.Alloc {
		return &nomad.Alloc{ID: id, Job: nomad.KeyOf(job), Group: "workers", Name: "j." + id, Client: client, Desired: api.AllocDesiredStatusRun, Version: &one, CreateIndex: 2, ModifyIndex: 2}
	}
}

// A member whose image is still being pulled is pending, as Nomad says: it does not run.
func TestPendingMembersDoNotRun(t *testing.T) {
	s, job, member := workers(api.JobTypeBatch, 3)
	for id, client := range map[string]string{"a": api.AllocClientStatusRunning, "b": api.AllocClientStatusPending, "c": api.AllocClientStatusPending} {
		s.PutAlloc(member(id, client))
	}
	if got := membersSay(s, gang.Observe(s, job)); !strings.HasPrefix(got, "1 of 3 members run, 2 placed and pending") {
		t.Error(got)
	}
}

// One that failed, and that Nomad starts again after a delay, is not said to be fetching its image,
// nor is one that waits for the end of the member that it replaces.
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
	const want = "0 of 3 members run, 1 ended and is started again by Nomad, as the restart block says, 1 placed, and waiting for the end of those that they replace (kill_timeout), 1 placed and pending"
	if got := membersSay(s, gang.Observe(s, job)); !strings.HasPrefix(got, want) {
		t.Error(got)
	}
}

// Canaries that are pending do not make members pending that run beside them.
func TestPendingCanaries(t *testing.T) {
	s, job, member := workers(api.JobTypeService, 2)
	for id, client := range map[string]string{"a": "running", "b": "running", "c": "pending", "d": "pending"} {
		s.PutAlloc(member(id, client))
	}
	if got := membersSay(s, gang.Observe(s, job)); got != "2 of 2 members run" {
		t.Error(got)
	}
}

// Members that Nomad preempted are said to be that, until others are there in their stead.
func TestPreemptedMembers(t *testing.T) {
	s, job, member := workers(api.JobTypeBatch, 3)
	for id, client := range map[string]string{"a": api.AllocClientStatusRunning, "b": api.AllocClientStatusComplete, "c": api.AllocClientStatusRunning} {
		a := member(id, client)
		if id != "a" {
			a.Desired = api.AllocDesiredStatusEvict
		}
		s.PutAlloc(a)
	}
	if got := membersSay(s, gang.Observe(s, job)); got != "1 of 3 members run, 2 preempted by Nomad for jobs with a higher priority" {
		t.Error(got)
	}
	s.PutAlloc(member("d", api.AllocClientStatusRunning))
	s.PutAlloc(member("e", api.AllocClientStatusRunning))
	if got := membersSay(s, gang.Observe(s, job)); got != "3 of 3 members run" {
		t.Error(got)
	}
}
