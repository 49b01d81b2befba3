// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A GPU on a node that has just reconnected is not chosen.
func TestReconnectingGPUIsNotChosen(t *testing.T) {
	s := world(1)
	s.PutAlloc(&cluster.Alloc{ID: "a", Job: cluster.JobKey{Namespace: "default", ID: "j"}, Node: "id-0", Client: api.AllocClientStatusLost, GPUs: []string{"n0-1"}})
	v, err := New(s, Options{Locality: pal.TwoTier(1.7), Unavailable: s.Unavailable(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	var free []string
	for i := range v.Cluster.NumGPUs() {
		if v.Cluster.Available(i) {
			free = append(free, v.Cluster.GPU(i).ID)
		}
	}
	slices.Sort(free)
	if !slices.Equal(free, []string{"n0-0", "n0-2", "n0-3"}) {
		t.Errorf("free: %v", free)
	}
}

// A start that was decided while a node was ready must not begin while the node is away. So its
// GPUs are unavailable to all jobs.
func TestGPUsOfNodesThatAreAway(t *testing.T) {
	for name, away := range map[string]func(n *api.Node){
		"down":       func(n *api.Node) { n.Status = api.NodeStatusDown },
		"draining":   func(n *api.Node) { n.Drain = true },
		"ineligible": func(n *api.Node) { n.SchedulingEligibility = api.NodeSchedulingIneligible },
	} {
		s := world(2)
		there := s.Nodes["id-0"]
		v := ledgerOf(t, s)
		change := func(n *api.Node) {
			s.PutNode(n)
			if !v.Update(s, ledgerOptions()) {
				t.Fatalf("%s: a new ledger is requested", name)
			}
		}
		gone := *there
		gone.ModifyIndex++
		away(&gone)
		change(&gone)
		if v.Cluster.Available(v.Cluster.Find("n0-0")) || !v.Cluster.Available(v.Cluster.Find("n1-0")) {
			t.Errorf("%s: its GPUs are available, or the other node's are not", name)
		}
		if v := ledgerOf(t, s); v.Cluster.Available(v.Cluster.Find("n0-0")) {
			t.Errorf("%s: its GPUs are available in a new ledger", name)
		}
		back := *there
		back.ModifyIndex += 2
		change(&back)
		if !v.Cluster.Available(v.Cluster.Find("n0-0")) {
			t.Errorf("%s: its GPUs are not available when the node is back", name)
		}
	}
}

// A member on a disconnected node holds its GPU until its gang is being stopped or is started
// elsewhere. From then on nobody holds the GPU, but it stays unavailable until the returned node
// reports what it runs.
func TestLeftBehind(t *testing.T) {
	for _, c := range []struct {
		name   string
		gated  bool
		gpus   []string // of the pins
		client string
		want   bool
	}{
		{"its gang keeps running", false, []string{"n0-1", "n1-1"}, "unknown", false},
		{"its gang is stopped", true, []string{"n0-1", "n1-1"}, "unknown", true},
		{"its gang was started elsewhere", false, []string{"n1-0", "n1-1"}, "unknown", true},
		{"it reports that it runs", true, []string{"n0-1", "n1-1"}, "running", false},
	} {
		s := world(2)
		job := pinnedTo(t, s, "j", 2, 1, 10, []string{"id-0", "id-1"}, c.gpus...)
		if c.gated {
			s.PutJob(rewrite.Gate(job))
		}
		s.PutAlloc(alloc("a", cluster.JobKey{Namespace: "default", ID: "j"}, 0, c.client, 5, "n0-1"))
		v := ledgerOf(t, s)
		held := slices.Contains(v.Holds(cluster.JobKey{Namespace: "default", ID: "j"}), v.Cluster.Find("n0-1"))
		if got := s.Unavailable(time.Unix(1000, 0))["n0-1"] != ""; got != c.want || held == c.want {
			t.Errorf("%s: unavailable %v, held %v; want %v, %v", c.name, got, held, c.want, !c.want)
		}
	}
}

// If a node lists a GPU that another node listed first, its allocations do not make the GPU busy.
// The first node's allocations do, even while that node is away.
func TestForeignAllocationsHoldNothing(t *testing.T) {
	s := cluster.NewState()
	put(s, clustertest.Node("a", "ready", 10, "G1"), clustertest.Node("z", "ready", 20, "G1", "T"))
	k := cluster.JobKey{Namespace: "default", ID: "j"}
	s.PutAlloc(&cluster.Alloc{ID: "1", Job: k, Node: "z", Client: "running", Desired: "run", GPUs: []string{"G1"}, CreateIndex: 30, ModifyIndex: 30})
	if d := cmp.Diff([]string{"G1", "T"}, free(ledgerOf(t, s))); d != "" {
		t.Errorf("held from elsewhere (-want +got)\n%s", d)
	}
	put(s, clustertest.Node("z", "ready", 20, "T")) // the node no longer lists it, but its allocation names it
	if d := cmp.Diff([]string{"G1", "T"}, free(ledgerOf(t, s))); d != "" {
		t.Errorf("held by a node that does not list it (-want +got)\n%s", d)
	}
	put(s, clustertest.Node("z", "ready", 20, "G1", "T"), clustertest.Node("a", "down", 10, "G1"))
	s.PutAlloc(&cluster.Alloc{ID: "2", Job: k, Node: "a", Client: "unknown", Desired: "run", GPUs: []string{"G1"}, CreateIndex: 40, ModifyIndex: 40})
	if d := cmp.Diff([]string{"T"}, free(ledgerOf(t, s))); d != "" {
		t.Errorf("the first owner's allocation may still run (-want +got)\n%s", d)
	}
	bad := &cluster.Alloc{GPUs: []string{"G1", "T", "gone"}, Node: "z"}
	put(s, clustertest.Node("a", "ready", 10, "G1"))
	if d := cmp.Diff([]string{"T", "gone"}, s.OwnGPUs(bad)); d != "" {
		t.Errorf("own GPUs (-want +got)\n%s", d)
	}
}

// The ledger is kept while nothing changes for it, even if the other node is sent again and again.
// It is built again when a GPU changes hands.
func TestViewOfContestedGPUs(t *testing.T) {
	s := cluster.NewState()
	put(s, clustertest.Node("a", "ready", 10, "G1", "G2"), clustertest.Node("z", "ready", 20, "G1", "T"))
	v := ledgerOf(t, s)
	epoch := v.Epoch()
	put(s, clustertest.Node("a", "ready", 10, "G1", "G2"))
	if !v.Update(s, ledgerOptions()) || v.Epoch() != epoch {
		t.Errorf("nothing changed, but a new ledger is requested or the epoch grew: epoch %d, was %d", v.Epoch(), epoch)
	}
	put(s, clustertest.Node("a", "down", 10, "G1", "G2"))
	if v.Update(s, ledgerOptions()) {
		t.Error("G1 is on another node, and Update reports success")
	}
}

// Invalid data of one node does not affect the others.
func TestSane(t *testing.T) {
	good := clustertest.Node("good", "ready", 1, "G")
	for _, c := range []struct {
		name    string
		change  func(n *api.Node)
		gpus    int // in the ledger, without the good node's GPU
		warning string
	}{
		{"nothing", func(*api.Node) {}, 2, ""},
		{"no resources", func(n *api.Node) { n.NodeResources = nil }, 0, ""},
		{"nil device", func(n *api.Node) { n.NodeResources.Devices = append(n.NodeResources.Devices, nil) }, 2, ""},
		{"nil instance", func(n *api.Node) {
			n.NodeResources.Devices[0].Instances = append(n.NodeResources.Devices[0].Instances, nil)
		}, 2, `1 of the GPUs of model "H200" are left out, because the id "" is missing`},
		{"nil attribute", func(n *api.Node) {
			n.NodeResources.Devices[0].Attributes = map[string]*api.Attribute{"unique.numa_0": nil, "unique.variability_raw": nil, "empty": {}}
		}, 2, ""},
		{"nil driver", func(n *api.Node) { n.Drivers = map[string]*api.DriverInfo{"docker": nil} }, 2, ""},
		{"empty id", func(n *api.Node) { n.NodeResources.Devices[0].Instances[0].ID = "" }, 1, `the id "" is empty`},
		{"comma", func(n *api.Node) { n.NodeResources.Devices[0].Instances[0].ID = "A,G" }, 1, `the id "A,G" contains ','`},
		{"our mark", func(n *api.Node) { n.NodeResources.Devices[0].Instances[0].ID = "nomad-pal" }, 1, "is nomad-pal's own mark"},
		{"control characters", func(n *api.Node) { n.NodeResources.Devices[0].Instances[0].ID = "\x1b[31mA" }, 1, "cannot be printed"},
		{"right to left", func(n *api.Node) { n.NodeResources.Devices[0].Instances[0].ID = "A\u202eB" }, 1, "cannot be printed"},
		{"unicode", func(n *api.Node) { n.NodeResources.Devices[0].Instances[0].ID = "GPU-ü" }, 2, ""},
		{"twice", func(n *api.Node) { n.NodeResources.Devices[0].Instances[0].ID = "B" }, 1, `the id "B" occurs twice`},
		{"no model", func(n *api.Node) { n.NodeResources.Devices[0].Name = "" }, 0, `GPUs of model "" are left out, because the name is empty`},
		{"thousands", func(n *api.Node) {
			for i := range 5000 {
				n.NodeResources.Devices[0].Instances = append(n.NodeResources.Devices[0].Instances, &api.NodeDevice{ID: fmt.Sprint("many", i)})
			}
		}, 256, "4746 of the GPUs of model"},
		{"thousands of models", func(n *api.Node) {
			for i := range 5000 {
				n.NodeResources.Devices = append(n.NodeResources.Devices, &api.NodeDeviceResource{Vendor: "nvidia", Type: "gpu", Name: fmt.Sprint(i)})
			}
		}, 2, "more than 64 models"},
		{"negative", func(n *api.Node) { n.NodeResources.Cpu.CpuShares = -5 }, 2, "-5 MHz count as 0"},
		{"absurd", func(n *api.Node) { n.NodeResources.Memory.MemoryMB = 1 << 62 }, 2, "4611686018427387904 MB of memory count as 1099511627776"},
		{"absurdly reserved", func(n *api.Node) {
			n.ReservedResources = &api.NodeReservedResources{Cpu: api.NodeReservedCpuResources{CpuShares: 1<<64 - 1}}
		}, 2, ""},
		{"bad node id", func(n *api.Node) { n.ID = "x,good" }, 0, `its id "x,good" contains`},
		{"no node id", func(n *api.Node) { n.ID = "" }, 0, `its id "" is empty`},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := clustertest.Node("n", "ready", 2, "A", "B")
			c.change(n)
			events, reads := cluster.NewState(), read(cluster.NewState(), nil, good, n)
			events.PutNode(good)
			events.PutNode(n)
			for how, s := range map[string]*cluster.State{"events": events, "a full read": reads} {
				v := ledgerOf(t, s)
				if got := v.Cluster.NumGPUs() - 1; got != c.gpus {
					t.Errorf("%s: %d GPUs, want %d", how, got, c.gpus)
				}
				if w := strings.Join(s.NodeWarnings(), "\n"); !strings.Contains(w, c.warning) || (c.warning == "") != (w == "") {
					t.Errorf("%s: warnings %q, want %q", how, w, c.warning)
				}
				for i := range v.Nodes {
					if f := v.Cluster.Free(i); f.CPU > 1<<40 || f.MemoryMB > 1<<40 || f.CPU < -1<<40 {
						t.Errorf("%s: free %+v", how, f)
					}
				}
				_, _, _ = s.Measurements()
				s.Unhealthy(slices.Collect(maps.Keys(s.GPUModels())))
			}
		})
	}
}

// Scores that the core does not accept count as missing.
func TestScoresThatAreNone(t *testing.T) {
	for _, x := range []pal.PMScore{-1, pal.PMScore(inf()), pal.PMScore(-inf()), pal.PMScore(inf() - inf())} {
		if finite(x) {
			t.Errorf("%v is accepted", x)
		}
	}
}

func inf() float64 { x := 1e308; return x * 10 }
