// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
)

// naming is a node that names these GPUs.
func naming(id, status string, joined uint64, gpus ...string) *api.Node {
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

// put puts nodes as events bring them, the later ones with higher indexes.
func put(s *State, nodes ...*api.Node) {
	for _, n := range nodes {
		copied := *n
		if old := s.Nodes[n.ID]; old != nil {
			copied.ModifyIndex = old.ModifyIndex + 1
		}
		s.putNode(&copied)
	}
}

// read is what a full read of these nodes and allocations gives after old.
func read(old *State, allocs []*Alloc, nodes ...*api.Node) *State {
	s := NewState()
	for _, n := range nodes {
		s.readNode(n, old)
	}
	for _, a := range allocs {
		s.PutAlloc(a)
	}
	s.owners = old.owners.after(s.Nodes)
	return s
}

// ownersOf is which node has each GPU in the view, by node id.
func ownersOf(t *testing.T, s *State) map[string]string {
	t.Helper()
	v := view(t, s)
	out := map[string]string{}
	for i := range v.Cluster.NumGPUs() {
		node, _ := v.Cluster.Group(v.Cluster.GroupOf(i))
		out[v.Cluster.GPU(i).ID] = v.Cluster.Node(node).ID
	}
	return out
}

// TestOwner has the rule of owner.go, case by case.
func TestOwner(t *testing.T) {
	a := func(status string) *api.Node { return naming("a", status, 10, "G1", "G2") }
	b := func(status string) *api.Node { return naming("b", status, 20, "G1", "G2", "G3") }
	thief := func(joined uint64) *api.Node { return naming("z", "ready", joined, "G1", "G2", "T") }
	for _, c := range []struct {
		name string
		do   func(s *State) *State
		want map[string]string
	}{
		{"a client is reinstalled: the old node is down", func(s *State) *State {
			put(s, a("ready"), a("down"), b("ready"))
			return s
		}, map[string]string{"G1": "b", "G2": "b", "G3": "b"}},
		{"the same, read at once", func(s *State) *State { return read(s, nil, a("down"), b("ready")) },
			map[string]string{"G1": "b", "G2": "b", "G3": "b"}},
		{"both are away: the newest", func(s *State) *State { return read(s, nil, a("down"), b("down")) },
			map[string]string{"G1": "b", "G2": "b", "G3": "b"}},
		{"a ready node names another's: the other keeps them", func(s *State) *State {
			put(s, a("ready"), thief(40))
			return s
		}, map[string]string{"G1": "a", "G2": "a", "T": "z"}},
		{"also where it is the older node", func(s *State) *State {
			put(s, naming("z", "ready", 1, "T"), a("ready"), thief(1))
			return s
		}, map[string]string{"G1": "a", "G2": "a", "T": "z"}},
		{"also after a full read", func(s *State) *State {
			put(s, naming("z", "ready", 1, "T"), a("ready"), thief(1))
			return read(s, nil, a("ready"), thief(1))
		}, map[string]string{"G1": "a", "G2": "a", "T": "z"}},
		{"while the owner is away they count for the other", func(s *State) *State {
			put(s, a("ready"), thief(40), a("down"))
			return s
		}, map[string]string{"G1": "z", "G2": "z", "T": "z"}},
		{"and come back with it", func(s *State) *State {
			put(s, a("ready"), thief(40), a("down"), a("ready"))
			return s
		}, map[string]string{"G1": "a", "G2": "a", "T": "z"}},
		{"known from the beginning: the first to join", func(s *State) *State { return read(s, nil, thief(40), a("ready")) },
			map[string]string{"G1": "a", "G2": "a", "T": "z"}},
		{"the card was moved", func(s *State) *State {
			put(s, a("ready"), naming("b", "ready", 20, "G2"), naming("a", "ready", 10, "G1"))
			return s
		}, map[string]string{"G1": "a", "G2": "b"}},
		{"the owner's plugin starts again: meanwhile they count for the other", func(s *State) *State {
			put(s, a("ready"), thief(40), naming("a", "ready", 10))
			return s
		}, map[string]string{"G1": "z", "G2": "z", "T": "z"}},
		{"and stay with it", func(s *State) *State {
			put(s, a("ready"), thief(40), naming("a", "ready", 10), a("ready"))
			return read(s, nil, a("ready"), thief(40))
		}, map[string]string{"G1": "z", "G2": "z", "T": "z"}},
		{"the owner is purged", func(s *State) *State {
			put(s, a("ready"), b("ready"))
			s.dropNode("a")
			return s
		}, map[string]string{"G1": "b", "G2": "b", "G3": "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.do(NewState())
			if d := cmp.Diff(c.want, ownersOf(t, s)); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// The warning names a GPU, both nodes and the reason, and ends with its cause.
func TestOwnerWarning(t *testing.T) {
	s := NewState()
	put(s, naming("node-old-1", "ready", 10, "G1", "G2"), naming("node-new-1", "ready", 20, "G1", "G2"))
	put(s, naming("node-old-1", "down", 10, "G1", "G2"))
	want := []string{`GPU "G1" and 1 more: named by node "host-node-old-1" (node-old, down) and by node "host-node-new-1" (node-new, ready); counted for the latter, which is ready`}
	if d := cmp.Diff(want, s.NodeWarnings()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	s.dropNode("node-old-1")
	if w := s.NodeWarnings(); len(w) > 0 {
		t.Errorf("after the old node is gone: %q", w)
	}
}

// An allocation on a node that names another's GPU does not keep it busy; one on
// the node that had it first does, while that is away.
func TestForeignAllocationsHoldNothing(t *testing.T) {
	s := NewState()
	put(s, naming("a", "ready", 10, "G1"), naming("z", "ready", 20, "G1", "T"))
	k := JobKey{"default", "j"}
	s.PutAlloc(&Alloc{ID: "1", Job: k, Node: "z", Client: "running", Desired: "run", GPUs: []string{"G1"}, CreateIndex: 30, ModifyIndex: 30})
	if d := cmp.Diff([]string{"G1", "T"}, free(view(t, s))); d != "" {
		t.Errorf("held from elsewhere (-want +got)\n%s", d)
	}
	put(s, naming("z", "ready", 20, "T")) // says no more, but its allocation names it
	if d := cmp.Diff([]string{"G1", "T"}, free(view(t, s))); d != "" {
		t.Errorf("held by a node that does not name it (-want +got)\n%s", d)
	}
	put(s, naming("z", "ready", 20, "G1", "T"), naming("a", "down", 10, "G1"))
	s.PutAlloc(&Alloc{ID: "2", Job: k, Node: "a", Client: "unknown", Desired: "run", GPUs: []string{"G1"}, CreateIndex: 40, ModifyIndex: 40})
	if d := cmp.Diff([]string{"T"}, free(view(t, s))); d != "" {
		t.Errorf("its first owner's allocation may run on (-want +got)\n%s", d)
	}
	bad := &Alloc{GPUs: []string{"G1", "T", "gone"}, Node: "z"}
	put(s, naming("a", "ready", 10, "G1"))
	if d := cmp.Diff([]string{"T", "gone"}, s.OwnGPUs(bad)); d != "" {
		t.Errorf("own GPUs (-want +got)\n%s", d)
	}
}

// A view is kept while nothing changes for it, however often the other node is
// sent again, and is rebuilt when a GPU changes hands.
func TestViewOfContestedGPUs(t *testing.T) {
	s := NewState()
	put(s, naming("a", "ready", 10, "G1", "G2"), naming("z", "ready", 20, "G1", "T"))
	v := view(t, s)
	epoch := v.Epoch()
	s.sorted = nil
	if !v.Update(s, options()) || v.Epoch() != epoch {
		t.Errorf("another view is wanted, or all is looked at again, where nothing changed: epoch %d, was %d", v.Epoch(), epoch)
	}
	put(s, naming("a", "down", 10, "G1", "G2"))
	if v.Update(s, options()) {
		t.Error("G1 is at another node, and the view says it is up to date")
	}
}

// Nothing that a node says of itself keeps the others from being served.
func TestSane(t *testing.T) {
	good := naming("good", "ready", 1, "G")
	for _, c := range []struct {
		name    string
		change  func(n *api.Node)
		gpus    int // in the view, beside the good node's
		warning string
	}{
		{"nothing", func(*api.Node) {}, 2, ""},
		{"no resources", func(n *api.Node) { n.NodeResources = nil }, 0, ""},
		{"nil device", func(n *api.Node) { n.NodeResources.Devices = append(n.NodeResources.Devices, nil) }, 2, ""},
		{"nil instance", func(n *api.Node) {
			n.NodeResources.Devices[0].Instances = append(n.NodeResources.Devices[0].Instances, nil)
		}, 2, `1 of the GPUs of model "H200" are left out: the id "" is not there`},
		{"nil attribute", func(n *api.Node) {
			n.NodeResources.Devices[0].Attributes = map[string]*api.Attribute{"unique.numa_0": nil, "unique.variability_raw": nil, "empty": {}}
		}, 2, ""},
		{"nil driver", func(n *api.Node) { n.Drivers = map[string]*api.DriverInfo{"docker": nil} }, 2, ""},
		{"empty id", func(n *api.Node) { n.NodeResources.Devices[0].Instances[0].ID = "" }, 1, `the id "" is empty`},
		{"comma", func(n *api.Node) { n.NodeResources.Devices[0].Instances[0].ID = "A,G" }, 1, `the id "A,G" holds ','`},
		{"our mark", func(n *api.Node) { n.NodeResources.Devices[0].Instances[0].ID = "nomad-pal" }, 1, "is the placer's own mark"},
		{"control characters", func(n *api.Node) { n.NodeResources.Devices[0].Instances[0].ID = "\x1b[31mA" }, 1, "cannot be printed"},
		{"right to left", func(n *api.Node) { n.NodeResources.Devices[0].Instances[0].ID = "A\u202eB" }, 1, "cannot be printed"},
		{"unicode", func(n *api.Node) { n.NodeResources.Devices[0].Instances[0].ID = "GPU-ü" }, 2, ""},
		{"twice", func(n *api.Node) { n.NodeResources.Devices[0].Instances[0].ID = "B" }, 1, `the id "B" is there twice`},
		{"no model", func(n *api.Node) { n.NodeResources.Devices[0].Name = "" }, 0, `GPUs of model "" are left out: the name is empty`},
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
		{"bad node id", func(n *api.Node) { n.ID = "x,good" }, 0, `its id "x,good" holds`},
		{"no node id", func(n *api.Node) { n.ID = "" }, 0, `its id "" is empty`},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := naming("n", "ready", 2, "A", "B")
			c.change(n)
			events, reads := NewState(), read(NewState(), nil, good, n)
			events.putNode(good)
			events.putNode(n)
			for how, s := range map[string]*State{"events": events, "a full read": reads} {
				v := view(t, s)
				if got := v.Cluster.NumGPUs() - 1; got != c.gpus {
					t.Errorf("%s: %d GPUs, want %d", how, got, c.gpus)
				}
				if w := strings.Join(s.NodeWarnings(), "\n"); !strings.Contains(w, c.warning) || (c.warning == "") != (w == "") {
					t.Errorf("%s: warnings %q, want %q", how, w, c.warning)
				}
				for i := range v.nodes {
					if f := v.Cluster.Free(i); f.CPU > maxAmount || f.MemoryMB > maxAmount || f.CPU < -maxAmount {
						t.Errorf("%s: free %+v", how, f)
					}
				}
				if _, err := v.Request(addJob(t, s, jobspec("j", 1, 1, ""), 3)); err != nil {
					t.Error(err)
				}
				_, _, _ = s.Measurements()
				s.Unhealthy(slices.Collect(maps.Keys(s.GPUModels())))
			}
		})
	}
}

// A node speaks for its own GPUs alone.
func TestMeasurementsOfOwnGPUs(t *testing.T) {
	says := func(n *api.Node, raw string) *api.Node {
		n.NodeResources.Devices[0].Attributes = map[string]*api.Attribute{"unique.variability_raw": text(raw)}
		return n
	}
	s := NewState()
	put(s, says(naming("a", "ready", 10, "G1"), "G1 A=1"), says(naming("z", "ready", 20, "G1", "T"), "G1 A=900;T A=1;G2 A=5"),
		says(naming("b", "ready", 30, "H"), strings.Repeat("H A=1;", 1_000_000)+"H A=1"), says(naming("c", "ready", 40, "I"), "I A=1e308"))
	samples, known, err := s.Measurements()
	got := map[string]float64{}
	for _, m := range samples {
		got[m.GPU] = m.Time
	}
	if d := cmp.Diff(map[string]float64{"G1": 1, "T": 1}, got); d != "" {
		t.Errorf("samples (-want +got)\n%s", d)
	}
	if len(known) != 4 {
		t.Errorf("known: %v", known)
	}
	for _, want := range []string{`node "host-z": 2 measurements of GPUs of model "H200" that it does not have are left out`, `node "host-b"`, "1000001 measurements", "1e+308 is not within"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// The numbers of a profile that the core would not take count as none.
func TestScoresThatAreNone(t *testing.T) {
	for _, x := range []pal.PMScore{-1, pal.PMScore(inf()), pal.PMScore(-inf()), pal.PMScore(inf() - inf())} {
		if finite(x) {
			t.Errorf("%v is taken", x)
		}
	}
}

func inf() float64 { x := 1e308; return x * 10 }

// What a node named once, nobody remembers.
func TestNamingIsForgotten(t *testing.T) {
	s := NewState()
	put(s, naming("z", "ready", 1, "G1", "G2"), naming("z", "ready", 1, "G2", "G3"))
	if n := len(s.owners.naming); n != 2 {
		t.Errorf("%d GPUs are remembered of a node with 2", n)
	}
	s.dropNode("z")
	if n := len(s.owners.naming); n > 0 {
		t.Errorf("%d GPUs are remembered of a node that is gone", n)
	}
}
