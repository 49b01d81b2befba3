// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
)

// fuzzJob requests a GPU with constraints of all kinds.
func fuzzJob(f *testing.F) *api.Job {
	f.Helper()
	job, err := jobspec2.Parse("job.hcl", strings.NewReader(`job "j" {
  constraint {
    attribute = "${attr.driver.version}"
    operator  = "version"
    value     = ">= 1.2"
  }
  spread { attribute = "${meta.rack}" }
  group "g" {
    task "t" {
      driver = "raw_exec"
      resources {
        device "nvidia/gpu" {
          constraint {
            attribute = "${device.attr.memory}"
            operator  = ">"
            value     = "2 GiB"
          }
          affinity {
            attribute = "${device.attr.x}"
            operator  = "set_contains_any"
            value     = "${device.ids}"
          }
          affinity {
            attribute = "${device.attr.x}"
            operator  = "regexp"
            value     = "${device.attr.y}"
          }
        }
      }
    }
  }
}`))
	if err != nil {
		f.Fatal(err)
	}
	job.Canonicalize()
	index, at := uint64(5), int64(5)
	job.Datacenters, job.ModifyIndex, job.JobModifyIndex, job.Version, job.SubmitTime = []string{"*"}, &index, &index, &index, &at
	return job
}

// seedNode is a node as the device plugin publishes one.
func seedNode() *api.Node {
	n := clustertest.Node("fuzzed", "ready", 3, "G1", "X1", "X2")
	memory, x, yes, half := int64(80), "X1", true, 0.5
	n.Meta, n.Attributes = map[string]string{"rack": "r1"}, map[string]string{"driver.version": "1.3.0", "driver.raw_exec": "1"}
	n.Drivers = map[string]*api.DriverInfo{"raw_exec": {Detected: true, Healthy: true}}
	n.NodeResources.Devices[0].Attributes = map[string]*api.Attribute{
		"memory": {IntVal: &memory, Unit: "GiB"}, "x": {StringVal: &x}, "y": {BoolVal: &yes}, "z": {FloatVal: &half, Unit: "W"},
		"unique.numa_0": clustertest.Text("X1,X2"), "unique.nvlink_island_32767": clustertest.Text("X1"), "unique.numa_99999999999": clustertest.Text("X1"),
		"unique.variability_raw": clustertest.Text("X1 A=1;G1 A=9;X2 A=1e300"), "unique.variability_a_le_1": clustertest.Text("X1"),
	}
	return n
}

// Whatever a node reports about itself, by event or in a list, the placer continues, the
// other node's GPUs are unaffected, and a view that was updated equals a rebuilt one.
func FuzzNode(f *testing.F) {
	job := fuzzJob(f)
	for _, change := range []func(n *api.Node){
		func(*api.Node) {},
		func(n *api.Node) {
			n.NodeResources.Devices[0].Instances[0], n.Drivers["docker"] = nil, nil
			n.NodeResources.Devices = append(n.NodeResources.Devices, nil)
		},
		func(n *api.Node) { n.NodeResources, n.ReservedResources = nil, nil },
		func(n *api.Node) {
			n.NodeResources.Cpu.CpuShares, n.NodeResources.Memory.MemoryMB = -1<<63, 1<<63-1
			n.ReservedResources = &api.NodeReservedResources{Disk: api.NodeReservedDiskResources{DiskMB: 1<<64 - 1}}
		},
		func(n *api.Node) { n.ID, n.Name, n.NodeResources.Devices[0].Name = "good", "\x1b[2J", "" },
	} {
		n := seedNode()
		change(n)
		b, err := json.Marshal(n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var n api.Node
		if json.Unmarshal(data, &n) != nil {
			return
		}
		if n.ID == "good" {
			n.ID = "fuzzed"
		}
		good := clustertest.Node("good", "ready", 2, "G1", "G2")
		s := cluster.NewState()
		s.PutNode(good)
		before := view(t, s)
		e := cluster.Event{Topic: "Node", Type: "NodeRegistration", Index: 9}
		e.Payload.Node = &n
		s.Apply(e)
		s.PutJob(job)
		s.PutAlloc(&cluster.Alloc{ID: "a", Job: cluster.JobKey{Namespace: "default", ID: "j"}, Node: n.ID, Client: "running", Desired: "run", GPUs: []string{"G1"}, CreateIndex: 9, ModifyIndex: 9})
		samples, known, _ := s.Measurements()
		o := profile.DefaultOptions()
		o.Known = known
		p, err := profile.Build(samples, o, nil)
		if err != nil {
			t.Fatalf("what nodes publish keeps the profile from being built: %v", err)
		}
		opts := options()
		opts.Ledger.Profile = p
		v, err := NewView(s, opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"G1", "G2"} {
			if i := v.Cluster.Find(id); i < 0 || v.Cluster.Node(nodeIndex(v, i)).ID != "good" || !v.Cluster.Available(i) {
				t.Fatalf("%s is no longer free, or has another owner", id)
			}
		}
		if before.Update(s, options()) && before.Cluster.FreeGPUs() != v.Cluster.FreeGPUs() {
			t.Fatalf("%d GPUs are free, followed: %d", v.Cluster.FreeGPUs(), before.Cluster.FreeGPUs())
		}
		if r, err := v.Request(job); err == nil {
			if pl, ok := pal.Place(v.Cluster, r.Gang, pal.Policy{Name: pal.PAL}); ok {
				if _, err := v.Pin(job, v.Pins(r, pl)); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.Unhealthy(slices.Collect(maps.Keys(s.GPUModels())))
		s.NodeWarnings()
		s.Apply(e)
		taken := s.Nodes[n.ID] != nil
		e.Type = "NodeDeregistration"
		e.Key = n.ID
		s.Apply(e)
		if w := s.NodeWarnings(); len(w) > 0 && taken {
			t.Fatalf("warnings about a removed node: %q", w)
		}
	})
}

// nodeIndex is the index of a GPU's node.
func nodeIndex(v *View, gpu int) int {
	node, _ := v.Cluster.Group(v.Cluster.GroupOf(gpu))
	return node
}

// FuzzWellformed: a well-formed job survives Canonicalize and all functions
// that read jobs.
func FuzzWellformed(f *testing.F) {
	for _, seed := range []string{
		`{"ID":"j","Constraints":[null]}`,
		`{"ID":"j","Type":"batch","TaskGroups":[{"Name":"g","Count":2,"Tasks":[{"Name":"t","Driver":"raw_exec","Resources":{"Devices":[{"Name":"nvidia/gpu","Count":1}]}}]}]}`,
		`{"ID":"j","TaskGroups":[{"Name":"g","Services":[{"Connect":{"SidecarService":{"Proxy":{"Upstreams":[{}],"Expose":{"Path":[{}]}}}},"Checks":[{}]}],"Volumes":{"v":{}},"Networks":[{}],"Tasks":[{"Name":"t","Resources":{},"Templates":[{}],"Artifacts":[{}],"VolumeMounts":[{}],"Vault":{},"LogConfig":{},"Services":[{}],"ScalingPolicies":[{}]}],"Scaling":{},"Update":{},"Migrate":{},"RestartPolicy":{},"ReschedulePolicy":{},"EphemeralDisk":{},"Consul":{},"Disconnect":{}}],"Multiregion":{"Regions":[{}]},"Periodic":{},"ParameterizedJob":{},"Update":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var job *api.Job
		if json.Unmarshal(text, &job) != nil || cluster.Wellformed(job) != nil {
			return
		}
		cluster.Canonicalize(job)
		ChoosesInstances(job)
		_ = Servable(job)
	})
}
