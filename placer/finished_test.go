// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

func events(types ...string) map[string]*api.TaskState {
	s := &api.TaskState{}
	for _, kind := range types {
		e := &api.TaskEvent{Type: kind}
		if kind == "failed" {
			e = &api.TaskEvent{Type: api.TaskTerminated, Details: map[string]string{"exit_code": "1"}}
		}
		s.Events = append(s.Events, e)
	}
	return map[string]*api.TaskState{"t": s}
}

// A gang that was to be stopped, to wait again, is not run again where all of it
// had done its work before it was.
func TestFinishedWhileStopping(t *testing.T) {
	look := "GET /v1/job/j/allocations"
	stopped := []string{look, "DELETE /v1/job/j", "GET /v1/job/j"}
	done, killed := events(api.TaskStarted, api.TaskTerminated), events(api.TaskStarted, api.TaskKilling, api.TaskTerminated)
	for _, c := range []struct {
		name    string
		version int // of the second member; the gate is version 100
		ended   int64
		tasks   map[string]*api.TaskState // of the second member
		pinned  bool
		want    []string
	}{
		{"all done", 99, 100, done, true, stopped},
		{"one was stopped", 99, 100, killed, true, nil},
		{"one failed and was not tried again", 99, 100, events(api.TaskStarted, "failed"), true, nil},
		{"one failed and was tried again", 99, 100, events(api.TaskStarted, "failed", api.TaskRestarting, api.TaskTerminated), true, stopped},
		{"one has no task that ran", 99, 100, nil, true, nil},
		{"a leader ended before it", 99, 100, events(api.TaskStarted, api.TaskLeaderDead, api.TaskKilling, api.TaskTerminated), true, stopped},
		{"one is of an earlier version", 98, 100, done, true, []string{look}},
		{"its author ran it again", 99, 100, done, false, nil},
		{"somebody reverted to the gate", 99, -int64(time.Minute), done, true, []string{look}},
	} {
		var asked []string
		stubs := []*api.AllocationListStub{
			{ID: "a1", TaskGroup: "g", JobVersion: 99, ClientStatus: "complete", TaskStates: done, ModifyTime: c.ended},
			{ID: "a2", TaskGroup: "g", JobVersion: uint64(c.version), ClientStatus: "complete", TaskStates: c.tasks, ModifyTime: c.ended},
		}
		job := benchJob("j", 100)
		if c.pinned {
			pins := rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "g", Nodes: []string{"n"}, GPUs: []string{"g1"}}}}
			var err error
			if job, err = rewrite.Pin(job, pins, rewrite.Racks{}); err != nil {
				t.Fatal(err)
			}
		}
		job = rewrite.Gate(job)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.Method+" "+r.URL.Path)
			switch r.Method + " " + r.URL.Path {
			case look:
				_ = json.NewEncoder(w).Encode(stubs)
			case "GET /v1/job/j":
				ended, index := *job, uint64(200)
				ended.Stop, ended.JobModifyIndex = new(bool), &index
				*ended.Stop = true
				_ = json.NewEncoder(w).Encode(ended)
			default:
				fmt.Fprint(w, `{"JobModifyIndex": 200}`)
			}
		}))
		client, err := nomad.NewClient(&api.Config{Address: server.URL}, "default")
		if err != nil {
			t.Fatal(err)
		}
		p := newPlacer(t)
		p.nomad, p.state = client, nomad.NewState()
		p.state.PutJob(job)
		k := nomad.KeyOf(job)
		for i, s := range stubs {
			p.state.PutAlloc(&nomad.Alloc{
				ID: s.ID, Job: k, Group: "g", Client: "complete", Desired: "run", GPUs: []string{fmt.Sprint(i)}, Tasks: s.TaskStates,
				CreateIndex: 50, ModifyIndex: 150,
			})
		}
		found := &tracked{Standing: StandingOf(p.state, job)}
		if found.Phase != Waiting {
			t.Fatalf("%s: it is %s", c.name, found.Phase)
		}
		for range 2 { // asks once
			if err := p.finished(t.Context(), found); err != nil {
				t.Error(err)
			}
			if found.refused != nil {
				break
			}
		}
		server.Close()
		if d := cmp.Diff(c.want, asked); d != "" {
			t.Errorf("%s: asked of Nomad (-want +got):\n%s", c.name, d)
		}
		if ended := nomad.Ended(p.state.Jobs[k]); ended != (len(c.want) > 1) {
			t.Errorf("%s: ended %v", c.name, ended)
		}
	}
}

// Registering what is there already makes no new version: the job that was known stays
// known as it is (walk 18: a gang that was gated a second time, and had finished, was
// run again, since its members were not of the version before).
func TestRegisteredAgain(t *testing.T) {
	was, index, version := benchJob("j", 100), uint64(100), uint64(2)
	was.JobModifyIndex, was.Version = &index, &version
	again := *was
	if got := registered(&again, was, 100); *got.Version != 2 {
		t.Errorf("version %d after nothing was written", *got.Version)
	}
	if got := registered(&again, was, 101); *got.Version != 3 || *got.JobModifyIndex != 101 {
		t.Errorf("version %d at index %d after a write", *got.Version, *got.JobModifyIndex)
	}
}
