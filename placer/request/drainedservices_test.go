// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Nomad moves the members of a service from a drained node one by one: each that still runs there will
// need GPUs on the job's other nodes, or on new ones.
func TestDrained(t *testing.T) {
	stopped := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		change func(*api.Job)
		mode   rewrite.Mode
		drain  bool
		after  time.Duration // one of them was stopped
		want   int
	}{
		"a service":               {func(*api.Job) {}, rewrite.ModeClass, true, time.Second, 3},
		"no drain":                {func(*api.Job) {}, rewrite.ModeClass, false, time.Second, 1},
		"it was stopped long ago": {func(*api.Job) {}, rewrite.ModeClass, true, time.Hour, 2},
		"one is too many":         {func(j *api.Job) { j.TaskGroups[0].Count = new(3) }, rewrite.ModeClass, true, time.Second, 2},
		"pinned to GPUs":          {func(*api.Job) {}, rewrite.ModeGPU, true, time.Second, 0},
		"a batch job":             {func(j *api.Job) { j.Type = new(api.JobTypeBatch) }, rewrite.ModeClass, true, time.Second, 0},
		"it is stopped":           {func(j *api.Job) { j.Stop = new(true) }, rewrite.ModeClass, true, time.Second, 0},
		"it is to be moved":       {func(j *api.Job) { *j = *rewrite.Gate(j) }, rewrite.ModeClass, true, time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := world(3)
			job := addJob(t, s, clustertest.Jobspec("j", 4, 2, ""), 5)
			job.Type = new(api.JobTypeService)
			pins := rewrite.Pins{Mode: c.mode, Groups: []rewrite.GroupPins{{Group: *job.TaskGroups[0].Name, Nodes: []string{"id-0", "id-1"}}}}
			if c.mode == rewrite.ModeGPU {
				pins.Groups[0].GPUs = []string{"n0-0", "n0-1", "n0-2", "n0-3", "n1-0", "n1-1", "n1-2", "n1-3"}
			}
			pinned, err := rewrite.Pin(job, pins, rewrite.Racks{})
			if err != nil {
				t.Fatal(err)
			}
			pinned.JobModifyIndex, pinned.ModifyIndex, pinned.Version, pinned.SubmitTime = job.JobModifyIndex, job.ModifyIndex, job.Version, job.SubmitTime
			c.change(pinned)
			s.PutJob(pinned)
			put := func(id, node, desired, gpu, other string) {
				s.PutAlloc(&cluster.Alloc{ID: id, Name: "j.g[" + id + "]", Job: cluster.KeyOf(job), Group: *job.TaskGroups[0].Name, Node: node, Client: "running", Desired: desired, GPUs: []string{gpu, other}, CreateIndex: 10, ModifyIndex: 10, ModifyTime: stopped.UnixNano()})
			}
			put("0", "id-0", "run", "n0-0", "n0-1")
			put("1", "id-0", "run", "n0-2", "n0-3")
			put("2", "id-1", "run", "n1-0", "n1-1")
			put("3", "id-0", "stop", "n0-2", "n0-3")
			if c.drain {
				n := *s.Nodes["id-0"]
				n.Drain, n.SchedulingEligibility = true, api.NodeSchedulingIneligible
				s.PutNode(&n)
			}
			v := view(t, s)
			got := v.Drained(pinned, stopped.Add(c.after))
			if len(got) != c.want {
				t.Fatalf("%d members are about to move, want %d", len(got), c.want)
			}
			for _, places := range got {
				for i, may := range [][]bool{{true, true, false}, {true, true, true}} {
					set := places[i].MemberSets[0]
					if set.Members != 1 || set.GPUs != 2 || set.Eligible[1] != may[1] || set.Eligible[2] != may[2] {
						t.Errorf("place %d: %+v", i, set)
					}
					if _, ok := pal.Place(v.Cluster, places[i], pal.Policy{Name: pal.PAL}); !ok {
						t.Errorf("place %d is missing", i)
					}
				}
			}
		})
	}
}

// A canary that was stopped because its deployment failed has the name of a member that keeps running: nothing
// is moved.
func TestDrainedIsNoCanary(t *testing.T) {
	s := world(2)
	job := addJob(t, s, clustertest.Jobspec("j", 1, 1, ""), 5)
	job.Type = new(api.JobTypeService)
	pins := rewrite.Pins{Mode: rewrite.ModeClass, Groups: []rewrite.GroupPins{{Group: *job.TaskGroups[0].Name, Nodes: []string{"id-0"}}}}
	pinned, err := rewrite.Pin(job, pins, rewrite.Racks{})
	if err != nil {
		t.Fatal(err)
	}
	pinned.JobModifyIndex, pinned.ModifyIndex, pinned.Version, pinned.SubmitTime = job.JobModifyIndex, job.ModifyIndex, job.Version, job.SubmitTime
	s.PutJob(pinned)
	put := func(id, desired, client, gpu string, index uint64) {
		s.PutAlloc(&cluster.Alloc{ID: id, Name: "j.g[0]", Job: cluster.KeyOf(job), Group: *job.TaskGroups[0].Name, Node: "id-0", Client: client, Desired: desired, GPUs: []string{gpu}, CreateIndex: index, ModifyIndex: index, ModifyTime: 1000})
	}
	put("member", "run", "running", "n0-0", 10)
	put("canary", "stop", "complete", "n0-1", 20)
	if got := view(t, s).Drained(pinned, time.Unix(0, 2000)); got != nil {
		t.Errorf("%d members are about to move, want none", len(got))
	}
}
