// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// The map contains racks by name, nodes without a rack in groups, distinguishable nodes of the same
// name, and the state of each GPU, in the order in which its node lists them.
func TestMap(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		for i := range 36 {
			n := nomadtest.GPUNode(i, 2)
			n.Name = fmt.Sprintf("n%02d", i)
			delete(n.Meta, "rack")
			switch i {
			case 0, 1:
				n.Meta["rack"] = "b"
			case 2:
				n.Meta["rack"], n.Name = "a", "n00"
			}
			w.Nomad.AddNode(n)
		}
		w.Quarantine("GPU-0-1")
		w.Nomad.SetHealth(false, "GPU-1-1")
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "all", Members: 34, GPUs: 2}) // two of the nodes lack a GPU
		w.Submit(bed.Gang{Name: "one", GPUs: 1})
		w.ExpectRunning("all", time.Minute)
		w.ExpectRunning("one", time.Minute)
		s := snapshot(w)
		m := s.Map()
		var racks []string
		for _, r := range m {
			racks = append(racks, fmt.Sprintf("%s/%s %d: %s", r.Datacenter, r.Name, len(r.Nodes), r.Nodes[0].Name))
		}
		want := []string{"dc1/no rack (n03 …) 32: n03", "dc1/no rack (n35 …) 1: n35", "dc1/a 1: n00 (00000003)", "dc1/b 2: n00"}
		if d := cmp.Diff(want, racks); d != "" {
			t.Errorf("racks (-want +got):\n%s", d)
		}
		nodes := 0
		for _, r := range m {
			for _, n := range r.Nodes {
				nodes++
				if n.Away != "" || len(n.Cells) != 2 {
					t.Errorf("node %+v", n)
				}
				for i, c := range n.Cells {
					found := s.SomeGPUs(palapi.GPUFilter{Nodes: []string{n.Name}})
					g := found[i%len(found)]
					for _, other := range found { // two nodes are named n00
						if other.Position == i && (n.Name != "n00" || strings.HasPrefix(other.ID, "GPU-0-")) {
							g = other
						}
					}
					if (c&query.CellAllocated != 0) != (g.Job != "") || (c&query.CellUnhealthy == query.CellUnhealthy) != !g.Healthy || (c&query.CellUnhealthy == query.CellQuarantined) != (g.Quarantine != nil) {
						t.Errorf("cell %d of node %s is %b, GPU %s: %+v", i, n.Name, c, g.ID, g)
					}
				}
			}
		}
		if nodes != 36 {
			t.Errorf("%d nodes", nodes)
		}
		trouble := s.SomeGPUs(palapi.GPUFilter{Trouble: true})
		if len(trouble) != 2 || trouble[0].ID != "GPU-0-1" || trouble[1].ID != "GPU-1-1" {
			t.Errorf("unhealthy or quarantined: %+v", trouble)
		}
		if some := s.SomeGPUs(palapi.GPUFilter{Trouble: true, Most: 1}); len(some) != 1 || some[0].ID != "GPU-0-1" {
			t.Errorf("the first unhealthy or quarantined: %+v", some)
		}
		if got := s.SomeGPUs(palapi.GPUFilter{Job: "default/one"}); len(got) != 1 {
			t.Errorf("GPUs of the job: %+v", got)
		}
	})
}

// A GPU whose node accepts no jobs is unavailable: it is not quarantined, and never counted as
// such.
func TestGPUStates(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(2, 4)
		w.Quarantine("GPU-0-1")
		w.Nomad.SetHealth(false, "GPU-0-0")
		p := w.StartPlacer()
		w.Submit(bed.Gang{Name: "one", GPUs: 1})
		w.ExpectRunning("one", time.Minute)
		w.Nomad.SetEligible(bed.NodeID(1), false)
		time.Sleep(time.Minute)
		s := snapshot(w)
		got := map[palapi.GPUState]int{}
		for _, g := range s.GPUs() {
			got[g.State]++
		}
		want := map[palapi.GPUState]int{palapi.GPUUnhealthy: 1, palapi.GPUQuarantined: 1, palapi.GPUAllocated: 1, palapi.GPUFree: 1, palapi.GPUUnavailable: 4}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("states (-want +got):\n%s", d)
		}
		if st := p.Status(); st.InTrouble != (palapi.GPUsInTrouble{Unhealthy: 1, Quarantined: 1}) || st.Allocated != 1 {
			t.Errorf("counted: %+v, %g allocated", st.InTrouble, st.Allocated)
		}
		away := s.Map()[0].Nodes[1]
		if away.Away != "the node is not eligible for scheduling" {
			t.Errorf("the node is away: %q", away.Away)
		}
		for i, c := range away.Cells {
			if c != query.CellUnavailable {
				t.Errorf("cell %d of the node: %b", i, c)
			}
		}
	})
}

// A GPU that no job may use yet is unavailable. Lists and explanations say why, and do not count it
// as quarantined.
func TestUnavailableSaysWhy(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1}, func(w *bed.World) {
		t := w.T // the T of the synctest bubble
		w.AddNodes(2, 4)
		w.StartPlacer()
		w.Submit(bed.Gang{Name: "purged", GPUs: 4})
		w.ExpectRunning("purged", time.Minute)
		w.Submit(bed.Gang{Name: "runs", GPUs: 4})
		w.ExpectRunning("runs", time.Minute)
		w.Submit(bed.Gang{Name: "waits", GPUs: 4})
		if err := w.Purge(nomadtest.Key{Namespace: "default", ID: "purged"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		s := snapshot(w)
		for _, g := range s.GPUs() {
			if want := "tasks of a purged job may still be ending on this GPU"; g.Job == "" && (g.State != palapi.GPUUnavailable || g.Unavailable != want) || g.Job != "" && g.Unavailable != "" {
				t.Errorf("%s of %q is %s: %q", g.ID, g.Job, g.State, g.Unavailable)
			}
		}
		e, err := s.Explain(t.Context(), cluster.JobKey{Namespace: "default", ID: "waits"})
		if err != nil {
			t.Fatal(err)
		}
		if c := e.Decision.Candidates; c.Unavailable != 4 || c.Quarantined != 0 || c.Allocated != 4 {
			t.Errorf("%+v", c)
		}
	})
}
