// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package ledger

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// holdingsState is a state of 4 nodes × 4 GPUs.
func holdingsState() *cluster.State {
	s := cluster.NewState()
	for n := range 4 {
		d := &api.NodeDeviceResource{Vendor: "nvidia", Type: "gpu", Name: "H200"}
		for k := range 4 {
			d.Instances = append(d.Instances, &api.NodeDevice{ID: holdingsGPU(4*n + k), Healthy: true})
		}
		id := fmt.Sprint("n", n)
		s.Nodes[id] = &api.Node{
			ID: id, Name: id, Datacenter: "dc1", NodePool: "default", Status: "ready", SchedulingEligibility: "eligible",
			NodeResources: &api.NodeResources{
				Cpu: api.NodeCpuResources{CpuShares: 10000}, Memory: api.NodeMemoryResources{MemoryMB: 10000},
				Disk: api.NodeDiskResources{DiskMB: 10000}, Devices: []*api.NodeDeviceResource{d},
			},
		}
	}
	return s
}

func holdingsGPU(i int) string { return fmt.Sprintf("G%02d", i) }

func holdingsJob(id string, index uint64) *api.Job {
	ns, kind, group, status := "default", "batch", "g", "pending"
	count, gpus, cpu, at := 2, uint64(2), 100, int64(index)
	return &api.Job{
		ID: &id, Name: &id, Namespace: &ns, Type: &kind, Status: &status, Datacenters: []string{"*"},
		Version: &index, ModifyIndex: &index, JobModifyIndex: &index, SubmitTime: &at,
		TaskGroups: []*api.TaskGroup{{Name: &group, Count: &count, Tasks: []*api.Task{{
			Name: "t", Driver: "raw_exec", Resources: &api.Resources{
				CPU: &cpu, MemoryMB: &cpu, Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &gpus}},
			},
		}}}},
	}
}

// seenOf returns all that a ledger reports about who holds what.
func seenOf(v *Ledger) map[string]any {
	m := map[string]any{"free": v.Cluster.FreeGPUs()}
	for i := range v.Cluster.NumGPUs() {
		m[fmt.Sprint("gpu", i)] = []any{v.Cluster.Available(i), v.Owner(i)}
	}
	for i := range v.Nodes {
		m[fmt.Sprint("node", i)] = v.Cluster.Free(i)
	}
	for k := range v.holds {
		m["job "+k.String()] = v.Holds(k)
	}
	return m
}

// roomOf returns all that is free in a ledger's cluster.
func roomOf(v *Ledger) map[string]any {
	m := map[string]any{}
	for i := range v.Cluster.NumGPUs() {
		m[fmt.Sprint("gpu", i)] = v.Cluster.Available(i)
	}
	for i := range v.Nodes {
		m[fmt.Sprint("node", i)] = v.Cluster.Free(i)
	}
	return m
}

// TestViewFollows changes the state at random. A ledger that follows the changes must equal a
// ledger that is built from scratch.
func TestViewFollows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, o := holdingsState(), Options{Locality: pal.TwoTier(1.7)}
		v, err := New(s, o)
		if err != nil {
			t.Fatal(err)
		}
		gpus := rapid.SliceOfNDistinct(rapid.Map(rapid.IntRange(0, 15), holdingsGPU), 1, 4, rapid.ID[string])
		job := rapid.Map(rapid.IntRange(0, 3), func(i int) string { return fmt.Sprint("j", i) })
		for index := uint64(1); index < 40; index++ {
			id := job.Draw(t, "job")
			k := cluster.JobKey{Namespace: "default", ID: id}
			switch rapid.IntRange(0, 7).Draw(t, "what") {
			case 0:
				s.PutJob(rewrite.Gate(holdingsJob(id, index)))
			case 1:
				pins := rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "g", Nodes: []string{"n0"}, GPUs: gpus.Draw(t, "pins")}}}
				pinned, err := rewrite.Pin(holdingsJob(id, index), pins, rewrite.Racks{})
				if err != nil {
					t.Fatal(err)
				}
				s.PutJob(pinned)
			case 2:
				s.DropJob(k)
			case 3:
				s.PutAlloc(&cluster.Alloc{
					ID: fmt.Sprint("a", rapid.IntRange(0, 5).Draw(t, "alloc"), id), Job: k, Group: "g", Desired: "run",
					Node: fmt.Sprint("n", rapid.IntRange(0, 3).Draw(t, "node")), GPUs: gpus.Draw(t, "gpus"),
					Client: rapid.SampledFrom([]string{"running", "complete", "failed"}).Draw(t, "status"),
					Used:   pal.Resources{CPU: 10, MemoryMB: 20}, CreateIndex: index, ModifyIndex: index,
				})
			case 4:
				o.Reserved = map[cluster.JobKey][]string{k: gpus.Draw(t, "held")}
			case 5: // a decision that the state may or may not show yet
				g := pal.Gang{ID: k.String(), Class: pal.ClassB, MemberSets: []pal.MemberSet{{Name: "g", Members: 2, GPUs: 2, Need: pal.Resources{CPU: 100, MemoryMB: 100}}}}
				if pl, ok := pal.Place(v.Cluster, g, pal.Policy{Name: pal.PAL}); ok {
					v.Take(g, pl)
					if rapid.Bool().Draw(t, "fails") {
						v.Release(g, pl)
					}
				}
			case 6:
				o.Ending = map[cluster.JobKey][]string{k: gpus.Draw(t, "completing")}
			default:
				continue // let several changes add up
			}
			if rapid.IntRange(0, 3).Draw(t, "later") == 0 {
				continue
			}
			if !v.Update(s, o) {
				t.Fatal("a new ledger is requested")
			}
			fresh, err := New(s, o)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(seenOf(fresh), seenOf(v)); d != "" {
				t.Fatalf("updated and rebuilt ledgers differ (-rebuilt +updated):\n%s", d)
			}
			without, err := New(s, o, k)
			if err != nil {
				t.Fatal(err)
			}
			_, back := v.Without(k)
			if d := cmp.Diff(roomOf(without), roomOf(v)); d != "" {
				t.Fatalf("Without differs from a ledger built without the job (-built +without):\n%s", d)
			}
			back()
			if d := cmp.Diff(seenOf(fresh), seenOf(v)); d != "" {
				t.Fatalf("back does not restore the job:\n%s", d)
			}
		}
	})
}
