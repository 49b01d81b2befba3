// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package ledger

import (
	"maps"
	"slices"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
)

// publish replaces a node of the world by a copy with other attributes and instances.
func publish(s *cluster.State, node string, change func(*api.NodeDeviceResource)) {
	n := *s.Nodes[node]
	resources, d := *n.NodeResources, *n.NodeResources.Devices[0]
	d.Attributes = map[string]*api.Attribute{}
	maps.Copy(d.Attributes, n.NodeResources.Devices[0].Attributes)
	d.Instances = nil
	for _, in := range n.NodeResources.Devices[0].Instances {
		c := *in
		d.Instances = append(d.Instances, &c)
	}
	change(&d)
	resources.Devices = []*api.NodeDeviceResource{&d}
	n.NodeResources = &resources
	n.ModifyIndex++
	s.PutNode(&n)
}

// degrade marks an instance as degraded: it works, but not as it should.
func degrade(i int, reasons string) func(*api.NodeDeviceResource) {
	return func(d *api.NodeDeviceResource) {
		d.Instances[i].HealthDescription = attr.DegradedPrefix + reasons
		d.Attributes[attr.Degraded] = clustertest.Text(d.Instances[i].ID)
	}
}

func gpuOf(t *testing.T, v *Ledger, id string) pal.GPU {
	t.Helper()
	for i := range v.Cluster.NumGPUs() {
		if u := v.Cluster.GPU(i); u.ID == id {
			return u
		}
	}
	t.Fatalf("no GPU %q", id)
	return pal.GPU{}
}

// A degraded GPU is used last, and explain tells the job that gets it.
func TestDegradedGPUIsChosenLast(t *testing.T) {
	for name, p := range map[string]*profile.Profile{"nothing measured": nil, "measured": profileOf(t)} {
		t.Run(name, func(t *testing.T) {
			s := world(1)
			publish(s, "id-0", degrade(0, "pcie,thermal-slowdown"))
			o := ledgerOptions()
			o.Profile = p
			v, err := New(s, o)
			if err != nil {
				t.Fatal(err)
			}
			if u := gpuOf(t, v, "n0-0"); u.Degraded != "pcie,thermal-slowdown" || u.Classes[0] != profile.MaxClass {
				t.Errorf("GPU %+v, want it degraded and in the last class", u)
			}
			for n := 1; n <= 4; n++ {
				d := pal.Explain(v.Cluster, pal.Gang{ID: "g", Class: pal.ClassA, MemberSets: []pal.MemberSet{{Name: "g", Members: n, GPUs: 1}}}, pal.Policy{Name: pal.PAL})
				if d.Chosen == nil {
					t.Fatalf("%d GPUs: not placed: %s", n, d.Reason)
				}
				reasons := map[string]string{}
				for _, m := range d.Chosen.Members {
					for _, u := range m.GPUs {
						reasons[u.ID] = u.Degraded
					}
				}
				if reason, chosen := reasons["n0-0"]; chosen != (n == 4) || chosen && reason != "pcie,thermal-slowdown" {
					t.Errorf("%d of 4 GPUs were chosen: %v", n, reasons)
				}
			}
		})
	}
}

// profileOf is a profile in which the GPU that the tests degrade is the fastest.
func profileOf(t *testing.T) *profile.Profile {
	t.Helper()
	var samples []profile.Sample
	for i, id := range []string{"n0-0", "n0-1", "n0-2", "n0-3"} {
		samples = append(samples, profile.SamplesOf("H200", []attr.Measurement{{GPU: id, Key: "k", Times: map[pal.AppClass]float64{pal.ClassA: 0.98 + 0.02*float64(i)}}})...)
	}
	p, err := profile.Build(samples, profile.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// If a plugin publishes something new about a GPU, the ledger is built again. If it publishes the
// same again, the ledger is kept.
func TestDegradationsAreFollowed(t *testing.T) {
	s := world(2)
	v := ledgerOf(t, s)
	publish(s, "id-1", func(*api.NodeDeviceResource) {})
	if !v.Update(s, ledgerOptions()) {
		t.Error("a new ledger is requested although the node published the same again")
	}
	publish(s, "id-1", degrade(2, "pcie"))
	if v.Update(s, ledgerOptions()) {
		t.Fatal("the ledger missed that a GPU became degraded")
	}
	v = ledgerOf(t, s)
	publish(s, "id-1", degrade(2, "pcie,slow"))
	if v.Update(s, ledgerOptions()) {
		t.Error("the ledger missed a new reason")
	}
}

// give publishes scores from a profile file of the plugin.
func give(scores string, lists map[int]string) func(*api.NodeDeviceResource) {
	return func(d *api.NodeDeviceResource) {
		d.Attributes[attr.Reference], d.Attributes[attr.Scores] = clustertest.Text(attr.ReferenceFile), clustertest.Text(scores)
		for k, ids := range lists {
			d.Attributes[attr.List(pal.ClassA, k)] = clustertest.Text(ids)
		}
	}
}

// A plugin's profile file rates GPUs that the cluster's own profile does not know.
func TestProfileGivenToThePlugin(t *testing.T) {
	s := world(2)
	publish(s, "id-0", give("n0-0 A=0.97;n0-1 A=1.3", map[int]string{1: "n0-0", 2: "n0-0", 3: "n0-0", 4: "n0-0"}))
	publish(s, "id-1", give("n1-0 A=0.99 Z=7;n1-9 A=1", map[int]string{1: "n1-0", 2: "n1-0", 3: "n1-0", 4: "n1-0"}))
	v := ledgerOf(t, s)
	for id, want := range map[string]pal.GPU{
		"n0-0": {Scores: [pal.NumClasses]pal.PMScore{0.97}, Binned: [pal.NumClasses]pal.PMScore{0.98}, Classes: [pal.NumClasses]uint8{1}},
		"n0-1": {Scores: [pal.NumClasses]pal.PMScore{1.3}, Binned: [pal.NumClasses]pal.PMScore{1.3}, Classes: [pal.NumClasses]uint8{profile.MaxClass}},
		"n0-2": {},
		"n1-0": {Scores: [pal.NumClasses]pal.PMScore{0.99}, Binned: [pal.NumClasses]pal.PMScore{0.98}, Classes: [pal.NumClasses]uint8{1}},
	} {
		if u := gpuOf(t, v, id); u.Scores != want.Scores || u.Binned != want.Binned || u.Classes != want.Classes {
			t.Errorf("%s has scores %v, bins %v, classes %v; want %v, %v, %v", id, u.Scores, u.Binned, u.Classes, want.Scores, want.Binned, want.Classes)
		}
	}
	o := ledgerOptions()
	o.Profile = profileOf(t) // the profile has the GPUs of the first node
	both, err := New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	if u := gpuOf(t, both, "n0-1"); u.Scores[0] == 1.3 {
		t.Error("the plugin's profile file overrides the cluster's own profile")
	}
	if u := gpuOf(t, both, "n1-0"); u.Scores[0] != 0.99 {
		t.Errorf("score %v of a GPU that only the plugin's profile knows, want 0.99", u.Scores[0])
	}
	publish(s, "id-1", give("n1-0 A=1.5", nil))
	if v.Update(s, ledgerOptions()) {
		t.Error("the ledger missed a new profile")
	}
	publish(s, "id-1", give("what is this?", nil))
	if u := gpuOf(t, ledgerOf(t, s), "n1-0"); u.Scores[0] != 0 || slices.Max(u.Classes[:]) != 0 {
		t.Errorf("scores that cannot be parsed are read as %v", u)
	}
}

// Only scores from the plugin's own measurement can be those of a GPU that stayed below its power
// limit. Imported times have other keys.
func TestUncapped(t *testing.T) {
	for key, want := range map[string]bool{"k": true, "imported": false} {
		s := world(1)
		publish(s, "id-0", func(d *api.NodeDeviceResource) {
			d.Attributes[attr.Raw] = clustertest.Text("n0-0 key=" + key + " A=1;n0-1 key=" + key + " A=1")
			d.Attributes[attr.Measuring] = clustertest.Text(attr.FormatAccounts(map[string]attr.Account{"n0-0": {Uncapped: true}, "n0-1": {}, "n0-2": {Uncapped: true}}))
		})
		o := ledgerOptions()
		o.Profile = profileOf(t)
		v, err := New(s, o)
		if err != nil {
			t.Fatal(err)
		}
		if got := v.Uncapped(0); got["n0-0"] != want || got["n0-1"] || got["n0-2"] {
			t.Errorf("measured with key %s: %v", key, got)
		}
	}
}
