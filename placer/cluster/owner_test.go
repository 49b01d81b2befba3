// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
)

// put puts nodes as events do, later ones with higher indexes.
func put(s *State, nodes ...*api.Node) {
	for _, n := range nodes {
		copied := *n
		if old := s.Nodes[n.ID]; old != nil {
			copied.ModifyIndex = old.ModifyIndex + 1
		}
		s.PutNode(&copied)
	}
}

// read makes a full read of these nodes and allocations after the state old.
func read(old *State, allocs []*Alloc, nodes ...*api.Node) *State {
	s, stubs := old.Next(), make([]*NodeStub, len(nodes))
	s.TakeNodes(old, 0, stubs, nodes, make([]error, len(nodes)))
	s.TakeAllocs(0, allocs)
	s.Follow(old)
	return s
}

// ownersOf returns the id of the node that owns each GPU in the view.
func ownersOf(t *testing.T, s *State) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, n := range s.GPUNodes() {
		for _, d := range GPUDevices(n) {
			for _, gpu := range d.Instances {
				out[gpu.ID] = n.ID
			}
		}
	}
	return out
}

// TestOwner tries the rules of owner.go, case by case.
func TestOwner(t *testing.T) {
	a := func(status string) *api.Node { return clustertest.Node("a", status, 10, "G1", "G2") }
	b := func(status string) *api.Node { return clustertest.Node("b", status, 20, "G1", "G2", "G3") }
	thief := func(joined uint64) *api.Node { return clustertest.Node("z", "ready", joined, "G1", "G2", "T") }
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
			put(s, clustertest.Node("z", "ready", 1, "T"), a("ready"), thief(1))
			return s
		}, map[string]string{"G1": "a", "G2": "a", "T": "z"}},
		{"also after a full read", func(s *State) *State {
			put(s, clustertest.Node("z", "ready", 1, "T"), a("ready"), thief(1))
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
			put(s, a("ready"), clustertest.Node("b", "ready", 20, "G2"), clustertest.Node("a", "ready", 10, "G1"))
			return s
		}, map[string]string{"G1": "a", "G2": "b"}},
		{"the owner's plugin starts again: meanwhile they count for the other", func(s *State) *State {
			put(s, a("ready"), thief(40), clustertest.Node("a", "ready", 10))
			return s
		}, map[string]string{"G1": "z", "G2": "z", "T": "z"}},
		{"and stay with it", func(s *State) *State {
			put(s, a("ready"), thief(40), clustertest.Node("a", "ready", 10), a("ready"))
			return read(s, nil, a("ready"), thief(40))
		}, map[string]string{"G1": "z", "G2": "z", "T": "z"}},
		{"the owner is purged", func(s *State) *State {
			put(s, a("ready"), b("ready"))
			s.DropNode("a")
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

// A node whose device plugin cannot store its state is warned of, until the plugin can.
func TestUnkeptWarning(t *testing.T) {
	s := NewState()
	node := func(index uint64, unkept string) *api.Node {
		n := clustertest.Node("node-1", "ready", 10, "G1")
		n.ModifyIndex = index
		if unkept != "" {
			n.NodeResources.Devices[0].Attributes = map[string]*api.Attribute{attr.Unkept: {StringVal: &unkept}}
		}
		return n
	}
	put(s, node(11, "the plugin cannot store faults: no space left\x1b on device"))
	want := []string{`node "host-node-1" (node-1): the device plugin cannot store its state, and loses it at a restart: "the plugin cannot store faults: no space left\x1b on device"`}
	if d := cmp.Diff(want, s.NodeWarnings()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	put(s, node(12, ""))
	if w := s.NodeWarnings(); len(w) > 0 {
		t.Errorf("still warned of: %v", w)
	}
}

// The warning names a GPU, both nodes and the reason. It disappears when one of the nodes is gone.
func TestOwnerWarning(t *testing.T) {
	s := NewState()
	put(s, clustertest.Node("node-old-1", "ready", 10, "G1", "G2"), clustertest.Node("node-new-1", "ready", 20, "G1", "G2"))
	put(s, clustertest.Node("node-old-1", "down", 10, "G1", "G2"))
	want := []string{`GPU "G1" and 1 more: listed by node "host-node-old-1" (node-old, down) and by node "host-node-new-1" (node-new, ready); nomad-pal uses the second node, which is ready`}
	if d := cmp.Diff(want, s.NodeWarnings()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	s.DropNode("node-old-1")
	if w := s.NodeWarnings(); len(w) > 0 {
		t.Errorf("the old node is gone, but there are warnings: %q", w)
	}
}

// Only the measurements that a node publishes of its own GPUs count.
func TestMeasurementsOfOwnGPUs(t *testing.T) {
	says := func(n *api.Node, raw string) *api.Node {
		n.NodeResources.Devices[0].Attributes = map[string]*api.Attribute{"unique.variability_raw": clustertest.Text(raw)}
		return n
	}
	s := NewState()
	put(s, says(clustertest.Node("a", "ready", 10, "G1"), "G1 A=1"), says(clustertest.Node("z", "ready", 20, "G1", "T"), "G1 A=900;T A=1;G2 A=5"),
		says(clustertest.Node("b", "ready", 30, "H"), strings.Repeat("H A=1;", 1_000_000)+"H A=1"), says(clustertest.Node("c", "ready", 40, "I"), "I A=1e308"))
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
	for _, want := range []string{`node "host-z": left out 2 measurements of GPUs of model "H200" that the node does not have`, `node "host-b"`, "1000001 measurements", "1e+308 is not between"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// A shared GPU has measurements like any other: under its own id and model, whichever group
// contains its parts.
func TestMeasurementsOfSharedGPUs(t *testing.T) {
	n := clustertest.Node("n", "ready", 10, "G1", "S::0", "S::1")
	d := n.NodeResources.Devices[0]
	parts := *d
	d.Instances, parts.Instances = d.Instances[:1], d.Instances[1:]
	parts.Type, parts.Name = attr.SharedType, d.Name+attr.SharedSuffix+"-2"
	for _, d := range []*api.NodeDeviceResource{d, &parts} {
		d.Attributes = map[string]*api.Attribute{attr.Raw: clustertest.Text("G1 A=1")}
	}
	parts.Attributes = map[string]*api.Attribute{attr.Raw: clustertest.Text("S A=2")}
	n.NodeResources.Devices = append(n.NodeResources.Devices, &parts)
	s := NewState()
	put(s, n)
	samples, known, err := s.Measurements()
	if err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(map[string]string{"G1": "H200", "S": "H200"}, known); d != "" {
		t.Errorf("GPUs (-want +got)\n%s", d)
	}
	got := map[string]string{}
	for _, m := range samples {
		got[m.GPU] = fmt.Sprint(m.Model, " ", m.Time)
	}
	if d := cmp.Diff(map[string]string{"G1": "H200 1", "S": "H200 2"}, got); d != "" {
		t.Errorf("samples (-want +got)\n%s", d)
	}
}

// The state forgets GPUs that a node no longer names.
func TestNamingIsForgotten(t *testing.T) {
	s := NewState()
	put(s, clustertest.Node("z", "ready", 1, "G1", "G2"), clustertest.Node("z", "ready", 1, "G2", "G3"))
	if n := len(s.owners.naming); n != 2 {
		t.Errorf("%d GPUs are remembered of a node with 2", n)
	}
	s.DropNode("z")
	if n := len(s.owners.naming); n > 0 {
		t.Errorf("%d GPUs are remembered of a node that is gone", n)
	}
}
