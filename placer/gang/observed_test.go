// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// TestObserved: each block of observed.txt makes a job and its allocations, and prints the job's
// state.
//
//	job [gated[=group]] [pinned=g1+g2] [count=n] [index=n] [stopped] [dead] [type=service] [periodic]
//	<client status> [desired] [gpu=g] [node=open] [group=web] [next=a2] [as=1] [exit] [killed] [created=n] [modified=n] [version=n], one line per allocation
//
// If only the group has the gate, the job has another group, "web", without GPUs. A job with the
// word web has it, too.
func TestObserved(t *testing.T) {
	datadriven.RunTest(t, "testdata/observed.txt", func(t *testing.T, d *datadriven.TestData) string {
		job := storyJob(t, d)
		s := cluster.NewState()
		s.Nodes["open"] = &api.Node{ID: "open", Meta: map[string]string{"pal_gate": "open"}}
		s.PutJob(job)
		for i, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
			if line != "" {
				s.PutAlloc(storyAlloc(t, cluster.KeyOf(job), i, line))
			}
		}
		st := Observe(s, job)
		out := fmt.Sprintf("%s: %d of %d members", st.Nomad, st.Have, st.Want)
		if st.Misplaced {
			out += ", misplaced"
		}
		if st.LeftOutBeside {
			out += ", one left out"
		}
		for _, a := range s.StaleVersions() {
			out += ", of which version is " + a.ID + "?"
		}
		return out + "\n"
	})
}

func storyJob(t *testing.T, d *datadriven.TestData) *api.Job {
	t.Helper()
	id, ns, kind, group, count, index := "j", "default", "batch", "g", 2, uint64(100)
	gpus, version, status, stop := uint64(1), uint64(1), "running", false
	var pins []string
	gated, ofGroup, web, canary, mode, elastic := false, false, false, 0, rewrite.ModeGPU, false
	var made *uint64
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "gated":
			gated, ofGroup = true, len(a.Vals) > 0
		case "web":
			web = true
		case "pinned":
			pins = strings.Split(a.Vals[0], "+")
		case "version":
			a.Scan(t, 0, &version)
		case "made":
			made = new(uint64)
			a.Scan(t, 0, made)
		case "class":
			mode = rewrite.ModeClass
		case "prefer":
			mode = rewrite.ModePrefer
		case "elastic":
			elastic = true
		case "canary":
			a.Scan(t, 0, &canary)
		case "count":
			a.Scan(t, 0, &count)
		case "index":
			a.Scan(t, 0, &index)
		case "stopped":
			stop = true
		case "dead":
			status = "dead"
		case "type":
			kind = a.Vals[0]
		case "periodic", "edited", "submitted":
		default:
			d.Fatalf(t, "no argument %q", a.Key)
		}
	}
	job := &api.Job{
		ID: &id, Namespace: &ns, Type: &kind, Status: &status, Stop: &stop, Version: &version,
		ModifyIndex: &index, JobModifyIndex: &index, CreateIndex: made,
		TaskGroups: []*api.TaskGroup{{Name: &group, Count: &count, Tasks: []*api.Task{{
			Name: "t", Resources: &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &gpus}}},
		}}}},
	}
	if elastic { // 2 to 4 members
		least, most := int64(2), int64(4)
		job.Meta = map[string]string{"pal_elastic": "true"}
		job.TaskGroups[0].Scaling = &api.ScalingPolicy{Min: &least, Max: &most}
	}
	if canary > 0 {
		job.TaskGroups[0].Update = &api.UpdateStrategy{Canary: &canary}
	}
	if d.HasArg("edited") {
		job.Meta = map[string]string{"learning_rate": "0.1"}
	}
	if d.HasArg("periodic") {
		job.Periodic = &api.PeriodicConfig{}
	}
	if pins != nil {
		var err error
		job, err = rewrite.Pin(job, rewrite.Pins{Mode: mode, Groups: []rewrite.GroupPins{{Group: "g", Nodes: []string{"n"}, GPUs: pins}}}, rewrite.Racks{})
		if err != nil {
			t.Fatal(err)
		}
	}
	if gated {
		job = rewrite.Gate(job)
	}
	if ofGroup {
		job.TaskGroups[0].Constraints, job.Constraints = job.Constraints, nil
	}
	if ofGroup || web {
		job.TaskGroups = append(job.TaskGroups, &api.TaskGroup{Name: new("web"), Count: new(1)})
	}
	return job
}

func storyAlloc(t *testing.T, k cluster.JobKey, i int, line string) *cluster.Alloc {
	t.Helper()
	words := strings.Fields(line)
	a := &cluster.Alloc{
		ID: fmt.Sprint("a", i), Name: fmt.Sprintf("%s.g[%d]", k.ID, i), Job: k, Group: "g", Client: words[0], Desired: "run",
		CreateIndex: 101, ModifyIndex: 102,
	}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		var err error
		switch key {
		case "stop", "evict":
			a.Desired = key
		case "gpu":
			a.GPUs = strings.Split(value, "+")
		case "node":
			a.Node = value
		case "group":
			a.Group, a.Name = value, fmt.Sprintf("%s.%s[0]", k.ID, value)
		case "next":
			a.Next = value
		case "as":
			a.Name = fmt.Sprintf("%s.g[%s]", k.ID, value)
		case "version":
			a.Version = new(uint64)
			_, err = fmt.Sscan(value, a.Version)
		case "exit":
			a.Tasks = events(api.TaskStarted, api.TaskTerminated)
		case "killed":
			a.Tasks = events(api.TaskStarted, api.TaskKilling, api.TaskTerminated, api.TaskKilled)
		case "created":
			_, err = fmt.Sscan(value, &a.CreateIndex)
		case "modified":
			_, err = fmt.Sscan(value, &a.ModifyIndex)
		default:
			t.Fatalf("no word %q", w)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return a
}
