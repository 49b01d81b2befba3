// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"testing"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A member on a disconnected node and its replacement count as one member: another one is missing.
func TestMissingBesideASilentOne(t *testing.T) {
	s := world(4)
	job := addJob(t, s, `
job "j" {
  type = "batch"
  meta { pal_on_failure = "member" }
  group "g" {
    count = 2
    task "t" {
      driver = "raw_exec"
      config { command = "x" }
      resources {
        cpu    = 10
        memory = 10
        device "nvidia/gpu" {}
      }
    }
  }
}`, 5)
	pinned, err := rewrite.Pin(job, rewrite.Pins{Mode: rewrite.ModeClass, Groups: []rewrite.GroupPins{{Group: "g", Nodes: []string{"id-0", "id-1", "id-2"}}}}, rewrite.Racks{})
	if err != nil {
		t.Fatal(err)
	}
	pinned.JobModifyIndex, pinned.ModifyIndex, pinned.Version, pinned.SubmitTime = job.JobModifyIndex, job.ModifyIndex, job.Version, job.SubmitTime
	s.PutJob(pinned)
	put := func(id, name, node, client, gpu string, at uint64) {
		s.PutAlloc(&cluster.Alloc{ID: id, Name: name, Job: cluster.KeyOf(job), Group: "g", Node: node, Client: client, Desired: "run", GPUs: []string{gpu}, CreateIndex: at, ModifyIndex: at})
	}
	put("a", "j.g[0]", "id-0", "unknown", "n0-0", 10)
	put("b", "j.g[0]", "id-2", "running", "n2-0", 11)
	put("c", "j.g[1]", "id-1", "failed", "n1-0", 12)
	v := view(t, s)
	r, err := v.Missing(pinned)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Gang.MemberSets[0].Members; n != 1 {
		t.Errorf("%d members are missing, want 1", n)
	}
}
