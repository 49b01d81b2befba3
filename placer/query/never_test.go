// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// A job with a group without GPUs that no node can take is unschedulable, and delays no other job.
// It starts once a node joins that can take the group.
func TestGroupWithoutGPUsThatNoNodeTakes(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(1, 4)
		p := w.StartPlacer()
		beside := bed.Gang{Name: "beside", Members: 1, GPUs: 4, Runs: time.Hour, Change: func(j *api.Job) {
			web := *j.TaskGroups[0]
			web.Name, web.Count = new("web"), new(1)
			task := *web.Tasks[0]
			task.Driver, task.Resources = "java", &api.Resources{CPU: new(100), MemoryMB: new(100)}
			web.Tasks = []*api.Task{&task}
			j.TaskGroups = append(j.TaskGroups, &web)
		}}
		w.Submit(beside)
		w.RunFor(3 * time.Second)
		const why = `Nomad cannot place group "web" on any node: missing drivers`
		status := func() (palapi.State, string) {
			for _, j := range p.Status().Jobs {
				if j.Job == "beside" {
					return j.State, j.Reason.String()
				}
			}
			return "", ""
		}
		if state, reason := status(); state != palapi.Unschedulable || !strings.HasPrefix(reason, why) {
			t.Errorf("it is %s: %s", state, reason)
		}
		e, err := snapshot(w).Explain(t.Context(), cluster.JobKey{Namespace: "default", ID: "beside"})
		if err != nil || e.State != palapi.Unschedulable || !strings.HasPrefix(e.Reason.String(), why) || len(e.Remedies) != 1 {
			t.Errorf("explain: %+v, %v", e, err)
		}
		w.Submit(bed.Gang{Name: "next", Members: 1, GPUs: 1, Runs: time.Minute})
		w.ExpectRunning("next", 10*time.Second)
		w.RunFor(2 * time.Minute)
		if state, reason := status(); state != palapi.Unschedulable {
			t.Errorf("later it is %s: %s", state, reason)
		}
		w.Nomad.AddNode(&api.Node{ID: "java", Drivers: map[string]*api.DriverInfo{"java": {Detected: true, Healthy: true}}})
		w.ExpectRunning("beside", 30*time.Second)
	})
}

// A job waits while its obstacles are temporary: disconnected nodes, unhealthy drivers and devices.
// It does not wait for what no node ever had: it is unschedulable.
func TestWhatPassesIsNotNever(t *testing.T) {
	web := func(change func(g *api.TaskGroup)) func(*api.Job) {
		return func(j *api.Job) {
			g := *j.TaskGroups[0]
			g.Name, g.Count = new("web"), new(1)
			task := *g.Tasks[0]
			task.Resources = &api.Resources{CPU: new(100), MemoryMB: new(100)}
			g.Tasks = []*api.Task{&task}
			change(&g)
			j.TaskGroups = append(j.TaskGroups, &g)
		}
	}
	onNode := func(name string) []*api.Constraint {
		return []*api.Constraint{api.NewConstraint("${node.unique.name}", "=", name)}
	}
	gpuNodes := []string{"node-0", "node-1"}
	all := func(w *bed.World, change func(n *api.Node)) {
		for i := range gpuNodes {
			n := nomadtest.GPUNode(i, 4)
			change(n)
			w.Nomad.AddNode(n)
		}
	}
	fpga := func(healthy bool) func(n *api.Node) {
		return func(n *api.Node) {
			n.NodeResources.Devices = append(n.NodeResources.Devices, &api.NodeDeviceResource{Vendor: "xilinx", Type: "fpga", Name: "u50", Instances: []*api.NodeDevice{{ID: "f", Healthy: healthy}}})
		}
	}
	for name, of := range map[string]struct {
		cluster func(w *bed.World)
		job     func(j *api.Job)
		state   palapi.State
		says    string
	}{
		"group without GPUs on a node that is drained": {
			func(w *bed.World) { w.Nomad.SetEligible(bed.NodeID(1), false) },
			web(func(g *api.TaskGroup) { g.Constraints = onNode(nomadtest.GPUNode(1, 4).Name) }), palapi.Waiting, `group "web"`,
		},
		"group without GPUs on a node that never was": {
			func(*bed.World) {}, web(func(g *api.TaskGroup) { g.Constraints = onNode("nowhere") }), palapi.Unschedulable, `Nomad cannot place group "web" on any node`,
		},
		"all nodes are away": {
			func(w *bed.World) {
				w.Nomad.SetEligible(bed.NodeID(0), false)
				w.Nomad.SetEligible(bed.NodeID(1), false)
			},
			func(*api.Job) {}, palapi.Waiting, "the job's nodes are unavailable",
		},
		"GPUs on a node that is drained": {
			func(w *bed.World) { w.Nomad.SetEligible(bed.NodeID(1), false) },
			func(j *api.Job) { j.Constraints = append(j.Constraints, onNode(nomadtest.GPUNode(1, 4).Name)...) }, palapi.Waiting, "not eligible for scheduling",
		},
		"driver that is not healthy": {
			func(w *bed.World) {
				all(w, func(n *api.Node) {
					n.Drivers = map[string]*api.DriverInfo{"raw_exec": {Detected: true, Healthy: true}, "docker": {Detected: true}}
				})
			},
			func(j *api.Job) { j.TaskGroups[0].Tasks[0].Driver = "docker" }, palapi.Waiting, "driver docker is not healthy",
		},
		"driver of a group without GPUs that is not healthy": {
			func(w *bed.World) {
				all(w, func(n *api.Node) {
					n.Drivers = map[string]*api.DriverInfo{"raw_exec": {Detected: true, Healthy: true}, "docker": {Detected: true}}
				})
			},
			web(func(g *api.TaskGroup) { g.Tasks[0].Driver = "docker" }), palapi.Waiting, `group "web"`,
		},
		"other device that is not healthy": {
			func(w *bed.World) { all(w, fpga(false)) },
			func(j *api.Job) {
				r := j.TaskGroups[0].Tasks[0].Resources
				r.Devices = append(r.Devices, &api.RequestedDevice{Name: "xilinx/fpga", Count: new(uint64(1))})
			}, palapi.Waiting, "xilinx/fpga",
		},
		"more of another device than any node has": {
			func(w *bed.World) { all(w, fpga(true)) },
			func(j *api.Job) {
				r := j.TaskGroups[0].Tasks[0].Resources
				r.Devices = append(r.Devices, &api.RequestedDevice{Name: "xilinx/fpga", Count: new(uint64(2))})
			}, palapi.Unschedulable, "2 × xilinx/fpga",
		},
		"group without GPUs with more memory than any node has": {
			func(*bed.World) {}, web(func(g *api.TaskGroup) { g.Tasks[0].Resources.MemoryMB = new(99_999_999) }), palapi.Unschedulable, "99999999 MB of memory",
		},
		"more members than a property has values": {
			func(*bed.World) {},
			func(j *api.Job) {
				j.TaskGroups[0].Count = new(3)
				j.Constraints = append(j.Constraints, api.NewConstraint("${node.unique.name}", "distinct_property", ""))
			}, palapi.Unschedulable, "${node.unique.name} has too few values for 3 members: 2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
				t := w.T // the T of the synctest bubble
				w.AddNodes(2, 4)
				of.cluster(w)
				p := w.StartPlacer()
				g := bed.Gang{Name: "j", Members: 1, GPUs: 1, Runs: time.Hour, Change: of.job}
				job := g.Job()
				cluster.Canonicalize(job)
				if e, err := snapshot(w).Plan(t.Context(), job); err != nil || e.State != of.state || !strings.Contains(e.Reason.String(), of.says) {
					t.Errorf("plan: %+v, %v", e, err)
				}
				w.Submit(g)
				w.RunFor(10 * time.Second)
				if e, err := snapshot(w).Explain(t.Context(), bed.Key("j")); err != nil || e.State != of.state || e.State == palapi.Unschedulable && !strings.Contains(e.Reason.String(), of.says) {
					t.Errorf("explain: %+v, %v", e, err)
				}
				for _, j := range p.Status().Jobs {
					if j.State != of.state || !strings.Contains(j.Reason.String(), of.says) {
						t.Errorf("the placer: %+v", j)
					}
				}
				w.Submit(bed.Gang{Name: "next", Members: 1, GPUs: 1, Runs: time.Minute})
				if !strings.Contains(name, "all nodes") {
					w.ExpectRunning("next", 40*time.Second)
				}
			})
		})
	}
}

// A job waits for a static port that other jobs use on every node: plan predicts no start, and the
// job starts when the port becomes free.
func TestStaticPortTaken(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(2, 4)
		p := w.StartPlacer()
		port := func(j *api.Job) {
			j.TaskGroups[0].Networks = []*api.NetworkResource{{ReservedPorts: []api.Port{{Label: "http", Value: 8188}}}}
		}
		w.Submit(bed.Gang{Name: "has", Members: 2, GPUs: 1, Runs: 10 * time.Minute, Change: port})
		w.ExpectRunning("has", 10*time.Second)
		g := bed.Gang{Name: "wants", Members: 1, GPUs: 1, Runs: time.Minute, Change: port}
		job := g.Job()
		cluster.Canonicalize(job)
		const why = "network: reserved port collision http=8188 (2 nodes)"
		if e, err := snapshot(w).Plan(t.Context(), job); err != nil || e.State != palapi.Waiting || !strings.Contains(e.Reason.String(), why) {
			t.Errorf("plan: %+v, %v", e, err)
		}
		w.Submit(g)
		w.RunFor(20 * time.Second)
		for _, j := range p.Status().Jobs {
			if j.Job == "wants" && (j.State != palapi.Waiting || !strings.Contains(j.Reason.String(), "port")) {
				t.Errorf("%s: %s", j.State, j.Reason.String())
			}
		}
		w.ExpectFinished("has", 12*time.Minute)
		w.ExpectRunning("wants", 2*time.Minute)
	})
}
