// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/hostile"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// If a member of an earlier version fails while it is stopped, that says nothing about the current
// version. Once, a drained gang was not requeued because of such a failure (walk 100669).
func TestLastFailureIsOfTheJobAsItIs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version uint64
		want    bool
	}{{4, false}, {5, true}} {
		m := model.Model{State: cluster.NewState()}
		job := hostile.Plain("j", 1, 1, 1)
		version, index := uint64(5), uint64(100)
		job.Version, job.JobModifyIndex, job.ModifyIndex = &version, &index, &index
		m.State.PutJob(job)
		m.State.PutAlloc(&cluster.Alloc{ID: "a", Job: cluster.KeyOf(job), Client: "failed", Desired: "stop", Version: &c.version, CreateIndex: 50, ModifyIndex: 150})
		m.Failures = []palapi.Failure{{Namespace: "default", Job: "j", Alloc: "a", Cause: palapi.CauseInfrastructure}}
		if got := m.World().LastFailure(job) != nil; got != c.want {
			t.Errorf("a member of version %d of a job at version 5 failed: %t", c.version, got)
		}
	}
}

// The failure of a replaced member, of an earlier registration, or of another job says nothing
// about the current job.
func TestLastFailureIsNotMended(t *testing.T) {
	t.Parallel()
	job, other, service := hostile.Plain("j", 1, 1, 1), hostile.Plain("k", 1, 1, 1), hostile.Plain("s", 1, 1, 1)
	version, index := uint64(5), uint64(100)
	for _, j := range []*api.Job{job, service} {
		j.Version, j.JobModifyIndex, j.ModifyIndex = &version, &index, &index
	}
	service.Type = new(api.JobTypeService)
	for name, c := range map[string]struct {
		alloc cluster.Alloc
		want  bool
	}{
		"of the current job":   {cluster.Alloc{ID: "a", Job: cluster.KeyOf(job), ModifyIndex: 101}, true},
		"replaced":             {cluster.Alloc{ID: "a", Job: cluster.KeyOf(job), ModifyIndex: 101, Next: "b"}, false},
		"before it was edited": {cluster.Alloc{ID: "a", Job: cluster.KeyOf(job), ModifyIndex: 100}, false},
		"of another job":       {cluster.Alloc{ID: "a", Job: cluster.KeyOf(other), ModifyIndex: 101}, false},
		"allocation is gone":   {cluster.Alloc{ID: "b", Job: cluster.KeyOf(job), ModifyIndex: 101}, false},
		// Nomad has stopped retrying it and replaces it with nothing, even if its author runs the
		// file again.
		"of a service, and not replaced": {cluster.Alloc{ID: "a", Job: cluster.KeyOf(service), ModifyIndex: 100, Desired: "run"}, true},
		"of a service, and stopped":      {cluster.Alloc{ID: "a", Job: cluster.KeyOf(service), ModifyIndex: 100, Desired: "stop"}, false},
	} {
		job := job
		if c.alloc.Job == cluster.KeyOf(service) {
			job = service
		}
		m := model.Model{State: cluster.NewState(), Failures: []palapi.Failure{
			{Namespace: "default", Job: c.alloc.Job.ID, Alloc: "a", Cause: palapi.CauseUser},
		}}
		m.State.PutJob(job)
		m.State.PutAlloc(&c.alloc)
		if got := m.World().LastFailure(job) != nil; got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A mass failure has more failures than the placer records. If a gang's failure was not recorded,
// its allocations show why and where it failed.
func TestFailuresThatWereNotNoted(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	m := model.Model{State: cluster.NewState(), Time: now}
	for i := range 121 {
		m.Failures = append(m.Failures, palapi.Failure{Namespace: "default", Job: fmt.Sprint("other-", i), Alloc: fmt.Sprint("other-", i), At: now, Cause: palapi.CauseInfrastructure})
	}
	job := hostile.Plain("j", 2, 1, 1)
	version, index := uint64(5), uint64(100)
	job.Version, job.JobModifyIndex, job.ModifyIndex = &version, &index, &index
	m.State.PutJob(job)
	member := func(id, client string, modified uint64, e *api.TaskEvent) {
		m.State.PutAlloc(&cluster.Alloc{
			ID: id, Job: cluster.KeyOf(job), Node: "node-" + id, Client: client, Desired: "run", Version: &version, GPUs: []string{"g"}, CreateIndex: 50, ModifyIndex: modified,
			ModifyTime: now.UnixNano(), Tasks: map[string]*api.TaskState{"t": {Failed: true, Events: []*api.TaskEvent{e}}},
		})
	}
	member("healthy", "running", 160, &api.TaskEvent{Type: api.TaskStarted})
	member("first", "failed", 150, &api.TaskEvent{Type: api.TaskTerminated, Details: map[string]string{"exit_code": "1"}})
	member("last", "failed", 155, &api.TaskEvent{Type: api.TaskSetupFailure, DisplayMessage: "registry down"})
	f := m.World().LastFailure(job)
	if f == nil || f.Alloc != "last" || f.Cause != palapi.CauseInfrastructure || !strings.HasSuffix(f.Reason, "registry down") {
		t.Errorf("last failure %+v, want the failure of the last member", f)
	}
	if got, want := m.FailedOn(cluster.KeyOf(job), now), map[string]bool{"node-first": true, "node-last": true}; !maps.Equal(got, want) {
		t.Errorf("failed on %v, want %v", got, want)
	}
}

// Members that Nomad ended at their group's max_run_duration (2.0.3 and later) are complete and
// desired to run, although they were killed: the gang has ended. It does not count as stopped by a
// drain, which would start again.
func TestEndedByTimeLimitIsNotLost(t *testing.T) {
	t.Parallel()
	for desired, want := range map[string]palapi.State{"run": palapi.Ended, "stop": palapi.Lost} {
		m := model.Model{State: cluster.NewState(), Time: time.Unix(1_000_000, 0)}
		version, index, dead := uint64(1), uint64(100), "dead"
		job, err := rewrite.Pin(hostile.Plain("j", 2, 1, 1), rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "g", Nodes: []string{"n"}, GPUs: []string{"g0", "g1"}}}}, rewrite.Racks{})
		if err != nil {
			t.Fatal(err)
		}
		job.Version, job.JobModifyIndex, job.ModifyIndex, job.Status = &version, &index, &index, &dead
		m.State.PutJob(job)
		for i := range 2 {
			m.State.PutAlloc(&cluster.Alloc{
				ID: fmt.Sprint("a", i), Name: fmt.Sprintf("j.g[%d]", i), Group: "g", Job: cluster.KeyOf(job), Client: "complete", Desired: desired, Version: &version,
				GPUs: []string{fmt.Sprint("g", i)}, CreateIndex: 110, ModifyIndex: 150, Tasks: map[string]*api.TaskState{"t": {Events: []*api.TaskEvent{
					{Type: api.TaskStarted}, {Type: api.TaskKilling, DisplayMessage: "allocation exceeded max_run_duration"},
					{Type: api.TaskTerminated, Details: map[string]string{"exit_code": "143"}}, {Type: api.TaskKilled},
				}}},
			})
		}
		if got := m.Observed(job).Nomad; got != want {
			t.Errorf("desired %s: %s, want %s", desired, got, want)
		}
	}
}

// explain shows the tries of this job in its namespace, including those that only Nomad remembers.
func TestTriesThatNomadRemembers(t *testing.T) {
	t.Parallel()
	m := model.Model{State: cluster.NewState()}
	job := hostile.Plain("j", 1, 1, 1)
	m.State.PutJob(job)
	k, at := cluster.KeyOf(job), time.Unix(1000, 0)
	m.Failures = []palapi.Failure{
		{Namespace: k.Namespace, Job: "j", Alloc: "known", Placed: at, At: at.Add(time.Minute)},
		{Namespace: "other", Job: "j", Alloc: "theirs"}, {Namespace: k.Namespace, Job: "k", Alloc: "k"},
	}
	for id, client := range map[string]string{"known": "failed", "failed": "failed", "lost": "lost", "done": "complete", "without GPUs": "failed"} {
		a := &cluster.Alloc{ID: id, Job: k, Client: client, GPUs: []string{"g"}, CreateTime: at.Add(time.Hour).UnixNano(), ModifyTime: at.Add(2 * time.Hour).UnixNano()}
		if id == "without GPUs" {
			a.GPUs = nil
		}
		m.State.PutAlloc(a)
	}
	got := map[string]int{}
	for _, f := range m.Tries(k) {
		got[f.Alloc] = f.Try
	}
	if want := map[string]int{"known": 1, "failed": 2, "lost": 2}; !maps.Equal(got, want) {
		t.Errorf("tries %v, want %v", got, want)
	}
}

// When an event shows that a job in pal_after has changed or ended, the placer reads the job again.
// It trusts Nomad's answer once that includes the change.
func TestHearOfDependencies(t *testing.T) {
	t.Parallel()
	index, dead, running := uint64(100), "dead", "running"
	for name, c := range map[string]struct {
		event    cluster.Event
		told     bool
		outdated []bool // the job at 99, at 100, and none
	}{
		"registered":           {cluster.Event{Topic: "Job", Type: "JobRegistered", Index: 100}, true, []bool{true, false, true}},
		"it runs":              {cluster.Event{Topic: "Job", Type: "AllocationUpdated", Index: 105}, false, []bool{false, false, false}},
		"it has ended":         {cluster.Event{Topic: "Job", Type: "AllocationUpdated", Index: 105, Payload: cluster.Payload{Job: &api.Job{Status: &dead}}}, true, []bool{true, false, true}},
		"purged":               {cluster.Event{Topic: "Job", Type: "JobDeregistered", Index: 105}, true, []bool{true, true, false}},
		"a member has stopped": {cluster.Event{Topic: "Allocation", Type: "AllocationUpdated", Index: 105, Payload: cluster.Payload{}}, false, []bool{false, false, false}},
	} {
		job := hostile.Plain("j", 1, 1, 1)
		job.ModifyIndex, job.Status = &index, &running
		if given := c.event.Payload.Job; given != nil {
			job.Status = given.Status
		}
		if c.event.Topic == "Job" {
			c.event.Payload.Job = job
		}
		m, k := model.Model{}, cluster.KeyOf(job)
		m.Dependencies.Known = map[cluster.JobKey]model.Dependency{k: {Due: time.Unix(1000, 0)}}
		if told := m.Dependencies.Hear(c.event); told != c.told || m.Dependencies.Known[k].Due.IsZero() != c.told {
			t.Errorf("%s: Hear returned %v, next query due at %v", name, told, m.Dependencies.Known[k].Due)
		}
		before := *job
		older := index - 1
		before.ModifyIndex = &older
		for i, j := range []*api.Job{&before, job, nil} {
			if got := m.Dependencies.Known[k].Outdated(j); got != c.outdated[i] {
				t.Errorf("%s: job %d is outdated: %v", name, i, got)
			}
		}
	}
}

// A change in the middle of a cycle counts from the next cycle on, for answers as for decisions.
// Once, explain reported a gang that had been pinned meanwhile as starting, and the list reported
// it as waiting (walk 20094).
func TestObservedAsTracked(t *testing.T) {
	t.Parallel()
	m := model.Model{State: cluster.NewState(), Jobs: map[cluster.JobKey]*model.Tracked{}}
	version := func(v uint64) *api.Job {
		job := hostile.Plain("j", 1, 1, 1)
		job.Version, job.JobModifyIndex, job.ModifyIndex = &v, &v, &v
		m.State.PutJob(job)
		return job
	}
	was := version(1)
	if got := m.Observed(was); got.Job != was {
		t.Errorf("a job that is not tracked is observed as %v, want it as it is", got.Job)
	}
	m.Add(cluster.KeyOf(was)).Observed = gang.Observe(m.State, was)
	if got := m.Observed(version(2)); got.Job != was {
		t.Errorf("observed in version %d, want 1: the placer has not looked at 2 yet", *got.Job.Version)
	}
}
