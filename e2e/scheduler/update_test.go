// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package scheduler

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/command/agent"
	"github.com/hashicorp/nomad/jobspec2"
	"github.com/hashicorp/nomad/nomad/structs"
)

// TestPinsOfRunningMembers: how Nomad treats running members when the pins of their job change.
// Nodes may be added. If a GPU is added or removed, Nomad replaces every member. So a single lost
// member can get another GPU only if the job is pinned to nodes, not to GPUs.
func TestPinsOfRunningMembers(t *testing.T) {
	t.Setenv("NOMAD_TEST_LOG_LEVEL", "off")
	for _, tc := range []struct {
		name, nodes, racks, gpus string
		replaced                 int
	}{
		{name: "nothing", nodes: "n1", gpus: "a1,a2", replaced: 0},
		{name: "a node more", nodes: "n1,n2", gpus: "a1,a2", replaced: 0},
		{name: "a GPU more", nodes: "n1", gpus: "a1,a2,a3", replaced: 2},
		{name: "another GPU for one", nodes: "n1,n2", gpus: "a1,b1", replaced: 2},
		{name: "no GPU pins at all", nodes: "n1", replaced: 2},
		{name: "the rack for the job's nodes", nodes: "n1", racks: "r1", gpus: "a1,a2", replaced: 0},
		{name: "a node more in another rack", nodes: "n1,n2", racks: "r1,r2", gpus: "a1,a2", replaced: 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := world{nodes: []*structs.Node{gpuNode(t, "n1", "r1", []string{"a1", "a2", "a3"}, true), gpuNode(t, "n2", "r2", []string{"b1"}, true)}}
			h := newHarness(t)
			w.store(t, h, w.pinned(t, "n1", "", "a1,a2"))
			w.register(t, h, 1)
			if got := w.outcome(h); strings.Count(got, "g on n1") != 2 {
				t.Fatalf("at first:\n%s", got)
			}
			before := len(h.Plans)
			job := w.pinned(t, tc.nodes, tc.racks, tc.gpus)
			job.Version = 1
			if err := h.State.UpsertJob(structs.MsgTypeTestSetup, h.NextIndex(), nil, job); err != nil {
				t.Fatal(err)
			}
			w.register(t, h, 2)
			replaced := 0
			for _, plan := range h.Plans[before:] {
				for _, stopped := range plan.NodeUpdate {
					replaced += len(stopped)
				}
			}
			if replaced != tc.replaced {
				t.Errorf("%d members are replaced, want %d", replaced, tc.replaced)
			}
		})
	}
}

// pinned is a gang of two members with one GPU each, pinned to nodes by name; also to racks and
// GPUs if given.
func (w *world) pinned(t *testing.T, nodes, racks, gpus string) *structs.Job {
	t.Helper()
	for _, n := range w.nodes {
		nodes = strings.ReplaceAll(nodes, n.Name, n.ID)
	}
	pin := func(target, mark, ids string) string {
		return fmt.Sprintf("constraint {\n attribute = %q\n operator = \"set_contains_any\"\n value = \"%s,%s\"\n }\n", target, mark, ids)
	}
	job, device := pin("${node.unique.id}", "nomad-pal/job", nodes), ""
	if racks != "" {
		job = pin("${meta.rack}", "nomad-pal/job", racks)
	}
	if gpus != "" {
		device = pin("${device.ids}", "nomad-pal", gpus)
	}
	parsed, err := jobspec2.Parse("pinned.nomad.hcl", strings.NewReader(fmt.Sprintf(`job "gang" {
  type = "batch"
  %s
  group "g" {
    count = 2
    %s
    task "t" {
      driver = "raw_exec"
      config { command = "sleep" }
      resources {
        cpu    = 10
        memory = 10
        device "nvidia/gpu" {
          count = 1
          %s
        }
      }
    }
  }
}`, job, pin("${node.unique.id}", "nomad-pal", nodes), device)))
	if err != nil {
		t.Fatal(err)
	}
	parsed.Canonicalize()
	out := agent.ApiJobToStructJob(parsed)
	out.Canonicalize()
	return out
}

// register stores the job and evaluates it.
func (w *world) register(t *testing.T, h *harness, n int) {
	t.Helper()
	job, err := h.State.JobByID(nil, api.DefaultNamespace, "gang")
	if err != nil {
		t.Fatal(err)
	}
	eval := &structs.Evaluation{
		ID: fmt.Sprintf("00000000-0000-0000-0000-%012d", n), Namespace: job.Namespace, Priority: job.Priority,
		TriggeredBy: structs.EvalTriggerJobRegister, JobID: job.ID, Type: job.Type, Status: structs.EvalStatusPending,
	}
	if err := h.State.UpsertEvals(structs.MsgTypeTestSetup, h.NextIndex(), []*structs.Evaluation{eval}); err != nil {
		t.Fatal(err)
	}
	if err := process(h, job, eval); err != nil {
		t.Fatal(err)
	}
}
