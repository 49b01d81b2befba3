// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

func view(t *testing.T, s *cluster.State, without ...cluster.JobKey) *View {
	t.Helper()
	v, err := NewView(s, options(), without...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// serviceGang is the meta of a service whose members need each other, so its pins name a class.
const serviceGang = `meta {
    pal_class      = "A"
    pal_on_failure = "gang"
  }`

func options() Options {
	return Options{Ledger: ledger.Options{Locality: pal.TwoTier(1.7), RackMeta: "rack"}, DefaultClass: pal.ClassB, Apps: map[string]pal.AppClass{"bert": pal.ClassB}}
}

// If a job cannot be served, the error lets its author fix it.
func TestRequestRefusals(t *testing.T) {
	for _, c := range []struct{ name, hcl, want string }{
		{"bad hint", clustertest.Jobspec("j", 1, 1, `meta { pal_class = "Z" }`), `meta pal_class = "Z" of the job: application class "Z" is unknown`},
		{"unknown app", clustertest.Jobspec("j", 1, 1, `meta { pal_class = "doom" }`), `meta pal_class = "doom" is neither a class from A to D nor a configured application (known: bert)`},
		{"no members", clustertest.Jobspec("j", 0, 1, ""), "every group with GPUs has count = 0"},
		{"fewer than none", clustertest.Jobspec("j", -1, 1, ""), `group "g" has count = -1, but a count cannot be negative`},
		{"no GPUs of a device", clustertest.Jobspec("j", 1, 0, ""), "its device blocks have count = 0"},
		{"system", strings.Replace(clustertest.Jobspec("j", 1, 1, ""), `"batch"`, `"system"`, 1), "a system job runs on every node"},
		{"own ids", strings.Replace(clustertest.Jobspec("j", 1, 1, ""), "          count = 1\n", `          constraint {
            attribute = "${device.ids}"
            operator  = "set_contains_any"
            value     = "n0-0"
          }
`, 1), "constrains ${device.ids}, but nomad-pal chooses the instances"},
		{"gate on one group of two", strings.Replace(clustertest.Jobspec("j", 1, 1, ""), "  group \"", `  group "web" {
    task "t" {
      driver = "raw_exec"
    }
  }
  group "waits" {
    constraint {
      attribute = "${meta.pal_gate}"
      value     = "open"
    }
    task "t" {
      driver = "raw_exec"
    }
  }
  group "`, 1), `group "web" has no gate, but other groups have a gate`},
		{"two blocks", strings.Replace(clustertest.Jobspec("j", 1, 1, ""), `device "nvidia/gpu" {`, "device \"gpu\" {}\n        device \"nvidia/gpu\" {", 1), "has 2 GPU device blocks"},
	} {
		s := world(1)
		_, err := view(t, s).Request(addJob(t, s, c.hcl, 1))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Where a gang may run follows Nomad's rules.
func TestRequestEligible(t *testing.T) {
	for _, c := range []struct {
		name, extra string
		change      func(*api.Node)
		want        []bool // of nodes 0, 1, 2
	}{
		{"anywhere", "", nil, []bool{true, true, true}},
		{"rack", `constraint {
  attribute = "${meta.rack}"
  value     = "r0"
}`, nil, []bool{true, true, false}},
		{"pool", `node_pool = "other"`, nil, []bool{false, false, false}},
		{"every pool", `node_pool = "all"`, func(n *api.Node) { n.NodePool = "other" }, []bool{true, true, true}},
		{"draining", "", func(n *api.Node) { n.Drain = true }, []bool{false, true, true}},
		{"ineligible", "", func(n *api.Node) { n.SchedulingEligibility = "ineligible" }, []bool{false, true, true}},
		{"down", "", func(n *api.Node) { n.Status = "down" }, []bool{false, true, true}},
		{"no driver", "", func(n *api.Node) { n.Drivers = nil }, []bool{false, true, true}},
	} {
		s := world(3)
		if c.change != nil {
			c.change(s.Nodes["id-0"])
		}
		r, err := view(t, s).Request(addJob(t, s, clustertest.Jobspec("j", 1, 1, c.extra), 1))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if d := cmp.Diff(c.want, r.Gang.MemberSets[0].Eligible); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

// A gang with volumes goes to nodes that can mount them, as far as Nomad knows. When a node
// gets such a volume, the gang may use it.
func TestRequestEligibleByVolume(t *testing.T) {
	hear := func(s *cluster.State, id, volumes string) bool { // as an event reports it
		t.Helper()
		n := *s.Nodes[id]
		n.ModifyIndex++
		text, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		var p cluster.NodePayload
		if err := errors.Join(json.Unmarshal(text, &p), json.Unmarshal([]byte(volumes), &p)); err != nil {
			t.Fatal(err)
		}
		return s.PutNode(p.AsNode())
	}
	for volumes, want := range map[*api.VolumeRequest][]bool{
		{Type: "host", Source: "data", ReadOnly: true}: {false, true, true},
		{Type: "host", Source: "data"}:                 {false, true, false},
		{Type: "csi", Source: "models"}:                {false, false, true},
	} {
		s := world(3)
		job := addJob(t, s, clustertest.Jobspec("j", 1, 1, ""), 1)
		job.TaskGroups[0].Volumes = map[string]*api.VolumeRequest{"d": volumes}
		v := view(t, s)
		for id, has := range map[string]string{
			"id-1": `{"HostVolumes": {"data": {"Path": "/data"}}}`,
			"id-2": `{"HostVolumes": {"data": {"ReadOnly": true}}, "CSINodePlugins": {"ebs": {"Healthy": true, "UpdateTime": "no time"}, "gone": null}}`,
		} {
			before := v.Epoch()
			if !hear(s, id, has) || !v.Update(s, options()) || v.Epoch() == before {
				t.Fatalf("%s: a node that got a volume counts as unchanged", id)
			}
			if hear(s, id, has) {
				t.Errorf("%s: nothing has changed, but it counts as a change", id)
			}
		}
		r, err := v.Request(job)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, r.Gang.MemberSets[0].Eligible); d != "" {
			t.Errorf("%+v: %s", volumes, d)
		}
		if n := len(v.Obstacles(job, "")); n == 0 {
			t.Errorf("%+v: there is no obstacle", volumes)
		}
	}
}

// Pins name exactly the GPUs of the placement, and a pinned job's placement can
// be read from them.
func TestPinsRoundTrip(t *testing.T) {
	s := world(2)
	job := addJob(t, s, clustertest.Jobspec("j", 3, 2, `meta { pal_class = "A" }`), 1)
	v := view(t, s)
	r, err := v.Request(job)
	if err != nil {
		t.Fatal(err)
	}
	pl, ok := pal.Place(v.Cluster, r.Gang, pal.Policy{Name: pal.PAL})
	if !ok {
		t.Fatal("the job does not fit")
	}
	pins := v.Pins(r, pl)
	if len(pins.GPUs()) != 6 || pins.Mode != rewrite.ModeGPU {
		t.Fatalf("pins: %+v", pins)
	}
	pinned, err := rewrite.Pin(job, pins, rewrite.Racks{})
	if err != nil {
		t.Fatal(err)
	}
	s.PutJob(pinned)
	v = view(t, s)
	if r, err = v.Request(pinned); err != nil {
		t.Fatal(err)
	}
	back := v.Running(r, v.Holds(r.Key))
	if back.Cost() != pl.Cost() || back.Tier != pl.Tier || len(back.Members) != 3 {
		t.Errorf("read back: %+v, placed: %+v", back, pl)
	}
}

// With distinct_hosts, or a static port, each node gets only one member, even if all would
// fit on one.
func TestDistinctHosts(t *testing.T) {
	s := world(4)
	for extra, nodes := range map[string]int{"": 1, "constraint {\n  distinct_hosts = true\n}": 3, "# static port": 3} {
		v := view(t, s)
		job := addJob(t, s, clustertest.Jobspec("j", 3, 1, extra), 1)
		if strings.HasPrefix(extra, "# static port") {
			job.TaskGroups[0].Networks = []*api.NetworkResource{{ReservedPorts: []api.Port{{Label: "rdzv", Value: 29500}}}}
		}
		r, err := v.Request(job)
		if err != nil {
			t.Fatal(err)
		}
		for _, policy := range []pal.PolicyName{pal.PAL, pal.PMFirst, pal.Packed, pal.Spread} {
			pl, ok := pal.Place(v.Cluster, r.Gang, pal.Policy{Name: policy})
			if !ok {
				t.Fatalf("%s: the job does not fit", policy)
			}
			want := nodes
			if policy == pal.Spread {
				want = 3
			}
			if got := pal.Describe(v.Cluster, r.Gang, pl).Nodes; got != want && policy != pal.PMFirst || got < nodes {
				t.Errorf("%s %q: %d nodes", policy, extra, got)
			}
		}
	}
}

// Class pins use what nodes publish: a GPU without published classes gets no
// class limit, only its node.
func TestClassPins(t *testing.T) {
	s := world(1)
	service := strings.Replace(clustertest.Jobspec("j", 1, 1, serviceGang), `"batch"`, `"service"`, 1)
	pinsOf := func() rewrite.Pins {
		v := view(t, s)
		r, err := v.Request(addJob(t, s, service, 1))
		if err != nil {
			t.Fatal(err)
		}
		pl, ok := pal.Place(v.Cluster, r.Gang, pal.Policy{Name: pal.PAL})
		if !ok {
			t.Fatal("the job does not fit")
		}
		return v.Pins(r, pl)
	}
	nodes := []rewrite.GroupPins{{Group: "g", Nodes: []string{"id-0"}}}
	if d := cmp.Diff(rewrite.Pins{Mode: rewrite.ModeClass, Groups: nodes}, pinsOf()); d != "" {
		t.Errorf("nothing published: %s", d)
	}
	attrs := s.Nodes["id-0"].NodeResources.Devices[0].Attributes
	attrs["unique.variability_a_le_1"] = clustertest.Text("")
	attrs["unique.variability_a_le_2"] = clustertest.Text("n0-0,n0-1,n0-2,n0-3")
	if d := cmp.Diff(rewrite.Pins{Mode: rewrite.ModeClass, Class: "A", Ceiling: 2, Groups: nodes}, pinsOf()); d != "" {
		t.Errorf("published: %s", d)
	}
}

// A group that is scaled to zero needs no pins; the others get theirs.
func TestPinsWithEmptyGroup(t *testing.T) {
	s := world(1)
	two := strings.Replace(clustertest.Jobspec("j", 1, 1, ""), `  group "g" {`, `  group "idle" {
    count = 0
    task "t" {
      driver = "raw_exec"
      resources {
        device "nvidia/gpu" {}
      }
    }
  }
  group "g" {`, 1)
	job := addJob(t, s, two, 1)
	v := view(t, s)
	r, err := v.Request(job)
	if err != nil {
		t.Fatal(err)
	}
	var pl pal.Placement
	for _, policy := range []pal.PolicyName{pal.Packed, pal.Spread, pal.PMFirst, pal.PAL} {
		var ok bool
		if pl, ok = pal.Place(v.Cluster, r.Gang, pal.Policy{Name: policy}); !ok {
			t.Fatalf("%s: the job does not fit", policy)
		}
	}
	pinned, err := v.Pin(job, v.Pins(r, pl))
	if err != nil {
		t.Fatal(err)
	}
	if p, _ := rewrite.Pinned(pinned); len(p.Groups) != 1 || p.Groups[0].Group != "g" {
		t.Errorf("pins: %+v", p)
	}
}

// Pins name the racks of a job's nodes if these are a small part of the
// cluster, and its nodes otherwise.
func TestRacksOfPins(t *testing.T) {
	s := world(8) // two per rack
	other := *s.Nodes["id-7"]
	other.Meta, other.ModifyIndex = nil, 2
	s.PutNode(&other)
	v := view(t, s)
	for _, c := range []struct {
		name  string
		nodes []string
		want  []string
	}{
		{"one node", []string{"id-2"}, []string{"r1"}},
		{"a rack", []string{"id-2", "id-3"}, []string{"r1"}},
		{"two racks of four", []string{"id-2", "id-4"}, nil},
		{"a node in no rack", []string{"id-7"}, nil},
		{"its rack's other node, alone there now", []string{"id-6"}, []string{"r3"}},
		{"a node in no rack and another", []string{"id-6", "id-7"}, nil},
		{"an unknown node", []string{"id-2", "gone"}, nil},
	} {
		if d := cmp.Diff(c.want, v.racks(c.nodes).Names); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

// outlierWorld is a view of nodes whose last GPU is an outlier. Each node has two lists of
// GPUs by class: class 2 at most, and class 3 at most.
func outlierWorld(t *testing.T, classes ...[2]string) (*cluster.State, *View) {
	t.Helper()
	s := world(len(classes))
	var samples []profile.Sample
	for n, of := range classes {
		for i, took := range []float64{1, 1.05, 1.06, 3.5} {
			samples = append(samples, profile.Sample{GPU: fmt.Sprintf("n%d-%d", n, i), Model: "H200", App: pal.ClassA, Time: took})
		}
		attrs := s.Nodes[fmt.Sprintf("id-%d", n)].NodeResources.Devices[0].Attributes
		attrs["unique.variability_a_le_1"], attrs["unique.variability_a_le_2"], attrs["unique.variability_a_le_3"] = clustertest.Text(""), clustertest.Text(of[0]), clustertest.Text(of[1])
	}
	measured, err := profile.Build(samples, profile.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Ledger.Profile, o.OutlierThreshold = measured, 1.5
	v, err := NewView(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return s, v
}

// Nomad chooses among the GPUs that class pins allow: none of them is an outlier, even if
// one class contains outliers and normal GPUs.
func TestPinsByClassLeaveOutOutliers(t *testing.T) {
	const alone, shared = "the outlier has a class of its own", "it shares one"
	service := strings.Replace(clustertest.Jobspec("s", 2, 1, serviceGang), `type = "batch"`, `type = "service"`, 1)
	elastic := strings.Replace(clustertest.Jobspec("e", 3, 1, `meta {
    pal_class   = "A"
    pal_elastic = "true"
  }`), "count = 3", "count = 3\n    scaling {\n      min = 1\n      max = 3\n    }", 1)
	for _, c := range []struct {
		name, job string
		ceiling   int
		named     []string
	}{
		{alone, elastic, 2, nil},
		{shared, elastic, 3, []string{"n0-0", "n0-1", "n0-2"}},
		{alone, service, 2, nil},
		{shared, service, 3, []string{"n0-0", "n0-1", "n0-2"}},
	} {
		lists := map[string][2]string{alone: {"n0-0,n0-1,n0-2", "n0-0,n0-1,n0-2,n0-3"}, shared: {"n0-0", "n0-0,n0-1,n0-2,n0-3"}}
		s, v := outlierWorld(t, lists[c.name])
		r, err := v.Request(addJob(t, s, c.job, 1))
		if err != nil {
			t.Fatal(err)
		}
		pl, ok := pal.Place(v.Cluster, r.Gang, pal.Policy{Name: pal.PAL, OutlierThreshold: 1.5})
		if !ok {
			t.Fatalf("%s: the job does not fit", c.name)
		}
		if got := v.Pins(r, pl); got.Ceiling != c.ceiling || !slices.Equal(got.Groups[0].GPUs, c.named) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
