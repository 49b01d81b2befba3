// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package plain

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/helper/uuid"
	"github.com/hashicorp/nomad/nomad/mock"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/scheduler"
	"github.com/hashicorp/nomad/scheduler/tests"
)

const file = "../../../sim/testdata/nomad.json"

// small is a cluster of equal nodes and a batch job of one-GPU allocations. Each
// allocation needs one GPU's share of a node's CPU and memory.
type small struct {
	Name   string `json:"name"`
	GPUs   int    `json:"gpus"` // GPUs of each node
	Busy   []int  `json:"busy"` // GPUs in use, per node
	Count  int    `json:"count"`
	Spread bool   `json:"spread"`
	// Placed is the share of the runs with an outcome, by the numbers of allocations on each node.
	// Allocations up to Count that are not among them stayed blocked.
	Placed map[string]float64 `json:"placed"`
}

const (
	runs      = 800
	tolerance = 0.08 // four standard deviations of a share of 0.5
	shareCPU  = 3500 // the mock node has 14,000 MHz, for 4 GPUs
	shareMB   = 2048
)

var rewrite = flag.Bool("rewrite", false, "record what Nomad does in "+file)

func TestNomad(t *testing.T) {
	t.Setenv("NOMAD_TEST_LOG_LEVEL", "OFF")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var cases []small
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatal("no cases")
	}
	for i, c := range cases {
		got := map[string]float64{}
		for range runs {
			got[place(t, c)] += 1.0 / runs
		}
		if *rewrite {
			for k, v := range got {
				got[k] = math.Round(v*1000) / 1000
			}
			cases[i].Placed = got
			continue
		}
		for _, k := range keys(got, c.Placed) {
			if math.Abs(got[k]-c.Placed[k]) > tolerance {
				t.Errorf("%s: %q in %.3f of the runs, recorded %.3f", c.Name, k, got[k], c.Placed[k])
			}
		}
	}
	if *rewrite {
		out, err := json.MarshalIndent(cases, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(out, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func keys(ms ...map[string]float64) []string {
	var ks []string
	for _, m := range ms {
		for k := range m {
			if !slices.Contains(ks, k) {
				ks = append(ks, k)
			}
		}
	}
	slices.Sort(ks)
	return ks
}

// place makes Nomad evaluate the job once, and returns where its allocations
// are.
func place(t *testing.T, c small) string {
	h := tests.NewHarness(t)
	algorithm := structs.SchedulerAlgorithmBinpack
	if c.Spread {
		algorithm = structs.SchedulerAlgorithmSpread
	}
	must(t, h.State.SchedulerSetConfig(h.NextIndex(), &structs.SchedulerConfiguration{SchedulerAlgorithm: algorithm}))
	var held []*structs.Allocation
	var nodes []string
	other := batchJob(1)
	for i, busy := range c.Busy {
		n := node(t, fmt.Sprintf("n%d", i), c.GPUs)
		must(t, h.State.UpsertNode(structs.MsgTypeTestSetup, h.NextIndex(), n))
		nodes = append(nodes, n.ID)
		for u := range busy {
			held = append(held, holder(other, n, u))
		}
	}
	if len(held) > 0 {
		must(t, h.State.UpsertJob(structs.MsgTypeTestSetup, h.NextIndex(), nil, other))
		must(t, h.State.UpsertAllocs(structs.MsgTypeTestSetup, h.NextIndex(), held))
	}
	job := batchJob(c.Count)
	must(t, h.State.UpsertJob(structs.MsgTypeTestSetup, h.NextIndex(), nil, job))
	eval := &structs.Evaluation{Namespace: job.Namespace, ID: uuid.Generate(), Priority: 50, Type: job.Type,
		TriggeredBy: structs.EvalTriggerJobRegister, JobID: job.ID, Status: structs.EvalStatusPending}
	must(t, h.State.UpsertEvals(structs.MsgTypeTestSetup, h.NextIndex(), []*structs.Evaluation{eval}))
	must(t, h.Process(scheduler.NewBatchScheduler, eval))
	counts := make([]int, len(c.Busy))
	for _, p := range h.Plans {
		for _, as := range p.NodeAllocation {
			for _, a := range as {
				counts[slices.Index(nodes, a.NodeID)]++
			}
		}
	}
	return strings.Trim(fmt.Sprint(counts), "[]")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func node(t *testing.T, name string, gpus int) *structs.Node {
	n := mock.Node()
	n.Name = name
	n.ReservedResources = nil
	n.NodeResources.Memory.MemoryMB = int64(gpus * shareMB)
	group := &structs.NodeDeviceResource{Vendor: "nvidia", Type: "gpu", Name: "sim"}
	for u := range gpus {
		group.Instances = append(group.Instances, &structs.NodeDevice{ID: fmt.Sprintf("%s-%d", name, u), Healthy: true})
	}
	n.NodeResources.Devices = []*structs.NodeDeviceResource{group}
	must(t, n.ComputeClass())
	return n
}

func batchJob(count int) *structs.Job {
	j := mock.BatchJob()
	g := j.TaskGroups[0]
	g.Count, g.Networks = count, nil
	g.Tasks[0].Driver = "exec"
	g.Tasks[0].Resources = &structs.Resources{CPU: shareCPU, MemoryMB: shareMB,
		Devices: structs.ResourceDevices{{Name: "nvidia/gpu", Count: 1}}}
	g.EphemeralDisk.SizeMB = 10
	return j
}

func holder(j *structs.Job, n *structs.Node, gpu int) *structs.Allocation {
	a := mock.BatchAlloc()
	a.Job, a.JobID, a.NodeID, a.NodeName = j, j.ID, n.ID, n.Name
	a.ClientStatus = structs.AllocClientStatusRunning
	a.TaskGroup = j.TaskGroups[0].Name
	a.AllocatedResources = &structs.AllocatedResources{Tasks: map[string]*structs.AllocatedTaskResources{
		j.TaskGroups[0].Tasks[0].Name: {
			Cpu:    structs.AllocatedCpuResources{CpuShares: shareCPU},
			Memory: structs.AllocatedMemoryResources{MemoryMB: shareMB},
			Devices: []*structs.AllocatedDeviceResource{{Vendor: "nvidia", Type: "gpu", Name: "sim",
				DeviceIDs: []string{fmt.Sprintf("%s-%d", n.Name, gpu)}}},
		},
	}}
	return a
}
