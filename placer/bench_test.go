// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// benchState is a cluster of n nodes × 8 GPUs, half of them busy, with waiting
// gangs of 2 × 4 GPUs.
func benchState(nodes, waiting int) (*nomad.State, *profile.Profile, error) {
	s := nomad.NewState()
	var samples []profile.Sample
	for n := range nodes {
		d := &api.NodeDeviceResource{Vendor: "nvidia", Type: "gpu", Name: "H200"}
		var ids []string
		for k := range 8 {
			id := fmt.Sprintf("GPU-%05d-%d", n, k)
			ids = append(ids, id)
			d.Instances = append(d.Instances, &api.NodeDevice{ID: id, Healthy: true})
			for i, class := range pal.AppClasses() {
				samples = append(samples, profile.Sample{GPU: id, Model: "H200", App: class, Time: 1 + float64((n*8+k)*(i+7)%97)/1000})
			}
		}
		node := &api.Node{
			ID: fmt.Sprintf("node-id-%05d", n), Name: fmt.Sprintf("node-%05d", n), Datacenter: "dc1", NodePool: "default",
			Status: "ready", SchedulingEligibility: "eligible", Attributes: map[string]string{"driver.raw_exec": "1"},
			NodeResources: &api.NodeResources{
				Cpu: api.NodeCpuResources{CpuShares: 100000}, Memory: api.NodeMemoryResources{MemoryMB: 1000000},
				Disk: api.NodeDiskResources{DiskMB: 1000000}, Devices: []*api.NodeDeviceResource{d},
			},
		}
		s.Nodes[node.ID] = node
		s.PutAlloc(&nomad.Alloc{
			ID: fmt.Sprint("a", n), Job: nomad.JobKey{Namespace: "default", ID: fmt.Sprint("busy", n)}, Group: "g",
			Node: node.ID, Desired: "run", Client: "running", GPUs: ids[:4],
		})
	}
	for i := range waiting {
		s.PutJob(rewrite.Gate(benchJob(fmt.Sprintf("job-%04d", i), uint64(i+1))))
	}
	p, err := profile.Build(samples, profile.DefaultOptions(), nil)
	return s, p, err
}

func benchJob(id string, index uint64) *api.Job {
	ns, kind, group, status := "default", "batch", "g", "pending"
	count, gpus, cpu, priority, submitted := 2, uint64(4), 100, 50, int64(index)
	return &api.Job{
		ID: &id, Name: &id, Namespace: &ns, Type: &kind, Status: &status, Priority: &priority, Datacenters: []string{"*"},
		Version: &index, ModifyIndex: &index, JobModifyIndex: &index, SubmitTime: &submitted,
		TaskGroups: []*api.TaskGroup{{Name: &group, Count: &count, Tasks: []*api.Task{{
			Name: "t", Driver: "raw_exec", Resources: &api.Resources{
				CPU: &cpu, MemoryMB: &cpu, Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &gpus}},
			},
		}}}},
	}
}

// BenchmarkCycle is the work of one cycle beside talking to Nomad: bring the
// view and the line up to date and decide.
func BenchmarkCycle(b *testing.B) {
	for _, size := range []struct{ nodes, waiting int }{{1000, 1}, {10000, 1}, {10000, 1000}} {
		b.Run(fmt.Sprintf("nodes=%d/waiting=%d", size.nodes, size.waiting), func(b *testing.B) {
			s, prof, err := benchState(size.nodes, size.waiting)
			if err != nil {
				b.Fatal(err)
			}
			p, err := New(nil, DefaultConfig(), hclog.NewNullLogger(), Hooks{})
			if err != nil {
				b.Fatal(err)
			}
			p.state, p.profile = s, prof
			now := time.Now()
			if err := p.look(now); err != nil { // the first builds everything
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := p.look(now); err != nil {
					b.Fatal(err)
				}
				p.track()
				p.syncLine(now)
				actions := p.line.Decide(since(now), p.view.Cluster)
				for _, a := range actions {
					p.prepare(p.byID(a.Job), a.Placement, now)
				}
				if len(actions) != size.waiting {
					b.Fatalf("%d of %d started", len(actions), size.waiting)
				}
				for _, a := range actions { // as if the commit had failed
					p.line.Requeue(since(now), a.Job)
				}
			}
		})
	}
}

// BenchmarkPublish is what making the queue visible costs, once a second at
// most.
func BenchmarkPublish(b *testing.B) {
	const nodes, waiting = 10000, 1000
	s, prof, err := benchState(nodes, waiting)
	if err != nil {
		b.Fatal(err)
	}
	for n := range nodes { // the rest is busy, too: all wait
		id := fmt.Sprintf("GPU-%05d-", n)
		s.PutAlloc(&nomad.Alloc{
			ID: fmt.Sprint("b", n), Job: nomad.JobKey{Namespace: "default", ID: fmt.Sprint("more", n)}, Group: "g",
			Node: fmt.Sprintf("node-id-%05d", n), Desired: "run", Client: "running", GPUs: []string{id + "4", id + "5"},
		})
	}
	p, err := New(nil, DefaultConfig(), hclog.NewNullLogger(), Hooks{})
	if err != nil {
		b.Fatal(err)
	}
	p.state, p.profile = s, prof
	now := time.Now()
	if err := p.look(now); err != nil {
		b.Fatal(err)
	}
	p.track()
	p.syncLine(now)
	if n := len(p.line.Decide(since(now), p.view.Cluster)); n > 0 {
		b.Fatalf("%d started", n)
	}
	for b.Loop() {
		p.status.At = time.Time{}
		p.publish(now)
	}
}
