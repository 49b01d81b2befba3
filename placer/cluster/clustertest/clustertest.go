// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package clustertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"
)

// Text returns an attribute with the value s.
func Text(s string) *api.Attribute { return &api.Attribute{StringVal: &s} }

// Node returns a node with these GPUs.
func Node(id, status string, joined uint64, gpus ...string) *api.Node {
	d := &api.NodeDeviceResource{Vendor: "nvidia", Type: "gpu", Name: "H200"}
	for _, g := range gpus {
		d.Instances = append(d.Instances, &api.NodeDevice{ID: g, Healthy: true})
	}
	return &api.Node{
		ID: id, Name: "host-" + id, Datacenter: "dc1", NodePool: "default", Status: status, SchedulingEligibility: "eligible",
		NodeResources: &api.NodeResources{
			Cpu: api.NodeCpuResources{CpuShares: 1000}, Memory: api.NodeMemoryResources{MemoryMB: 1000},
			Disk: api.NodeDiskResources{DiskMB: 1000}, Devices: []*api.NodeDeviceResource{d},
		},
		CreateIndex: joined, ModifyIndex: joined,
	}
}

// SmallJob returns a job with one member and only the fields that Nomad sets in every job.
func SmallJob(id string, index uint64, gpus bool) *api.Job {
	task := &api.Task{Name: "t"}
	if gpus {
		task.Resources = &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu"}}}
	}
	kind := "batch"
	group := "g"
	one := 1
	submitted := int64(index)
	return &api.Job{
		ID: &id, Name: &id, Namespace: new("default"), Type: &kind, Priority: &one, Version: new(uint64), SubmitTime: &submitted,
		CreateIndex: &index, ModifyIndex: &index, JobModifyIndex: &index, TaskGroups: []*api.TaskGroup{{Name: &group, Count: &one, Tasks: []*api.Task{task}}},
	}
}

// Nodes returns the given number of nodes, each with four H200 GPUs whose ids are n<node>-<k>.
func Nodes(nodes int) (all []*api.Node) {
	for n := range nodes {
		d := &api.NodeDeviceResource{Vendor: "nvidia", Type: "gpu", Name: "H200", Attributes: map[string]*api.Attribute{}}
		for k := range 4 {
			d.Instances = append(d.Instances, &api.NodeDevice{ID: fmt.Sprintf("n%d-%d", n, k), Healthy: true})
		}
		d.Attributes["unique.numa_0"] = Text(fmt.Sprintf("n%d-0,n%d-1", n, n))
		d.Attributes["unique.numa_1"] = Text(fmt.Sprintf("n%d-2,n%d-3", n, n))
		all = append(all, &api.Node{
			ID: fmt.Sprintf("id-%d", n), Name: fmt.Sprintf("node-%d", n), Datacenter: "dc1", NodePool: "default",
			Status: "ready", SchedulingEligibility: "eligible", Meta: map[string]string{"rack": fmt.Sprintf("r%d", n/2)},
			Drivers: map[string]*api.DriverInfo{"raw_exec": {Detected: true, Healthy: true}},
			NodeResources: &api.NodeResources{
				Cpu: api.NodeCpuResources{CpuShares: 1000}, Memory: api.NodeMemoryResources{MemoryMB: 1000},
				Disk: api.NodeDiskResources{DiskMB: 1000}, Devices: []*api.NodeDeviceResource{d},
			},
			ModifyIndex: 1,
		})
	}
	return all
}

// Fill puts the nodes of [Nodes] into a state.
func Fill[S interface{ PutNode(*api.Node) bool }](s S, nodes int) S {
	for _, n := range Nodes(nodes) {
		s.PutNode(n)
	}
	return s
}

// AddJob puts a [Job] into a state.
func AddJob(t *testing.T, s interface{ PutJob(*api.Job) }, hcl string, index uint64) *api.Job {
	t.Helper()
	job := Job(t, hcl, index)
	s.PutJob(job)
	return job
}

// Job parses a jobspec and returns the job as Nomad would return it.
func Job(t *testing.T, hcl string, index uint64) *api.Job {
	t.Helper()
	job, err := jobspec2.Parse("job.hcl", strings.NewReader(hcl))
	if err != nil {
		t.Fatal(err)
	}
	job.Canonicalize()
	job.Datacenters = []string{"*"}
	job.ModifyIndex, job.JobModifyIndex = &index, &index
	version, submitted := uint64(0), int64(index)
	job.Version, job.SubmitTime = &version, &submitted
	return job
}

// Jobspec returns the jobspec of a batch job with one group, "g".
func Jobspec(id string, count, gpus int, extra string) string {
	return fmt.Sprintf(`job %q {
  type = "batch"
  %s
  group "g" {
    count = %d
    ephemeral_disk { size = 110 }
    task "t" {
      driver = "raw_exec"
      resources {
        cpu    = 100
        memory = 100
        device "nvidia/gpu" {
          count = %d
        }
      }
    }
  }
}`, id, extra, count, gpus)
}
