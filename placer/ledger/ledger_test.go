// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package ledger

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// ledgerOf returns a ledger of the state.
func ledgerOf(t *testing.T, s *cluster.State, without ...cluster.JobKey) *Ledger {
	t.Helper()
	v, err := New(s, ledgerOptions(), without...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func ledgerOptions() Options {
	return Options{Locality: pal.TwoTier(1.7), RackMeta: "rack"}
}

func free(v *Ledger) (ids []string) {
	for i := range v.Cluster.NumGPUs() {
		if v.Cluster.Available(i) {
			ids = append(ids, v.Cluster.GPU(i).ID)
		}
	}
	return ids
}

// A GPU is taken if a live allocation has it, or if pins promise it and no allocation has it yet. A
// finished member frees its GPU.
func TestViewTaken(t *testing.T) {
	s := world(2)
	k := cluster.JobKey{Namespace: "default", ID: "j"}
	job := addJob(t, s, clustertest.Jobspec("j", 2, 1, ""), 10)
	if got := len(free(ledgerOf(t, s))); got != 8 {
		t.Fatalf("%d GPUs are free of 8", got)
	}
	pinned, err := rewrite.Pin(job, rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{
		{Group: "g", Nodes: []string{"id-0"}, GPUs: []string{"n0-1", "n0-2"}},
	}}, rewrite.Racks{})
	if err != nil {
		t.Fatal(err)
	}
	s.PutJob(pinned)
	others := []string{"n0-0", "n0-3", "n1-0", "n1-1", "n1-2", "n1-3"}
	expect := func(what string, want []string) {
		t.Helper()
		if d := cmp.Diff(want, free(ledgerOf(t, s))); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	expect("promised", others)
	if n := ledgerOf(t, s).Cluster; n.FreeGPUs() != 6 {
		t.Errorf("free GPUs: %d", n.FreeGPUs())
	}
	s.PutAlloc(alloc("a1", k, 0, "running", 11, "n0-1"))
	expect("one runs, one is promised", others)
	s.PutAlloc(alloc("a2", k, 0, "running", 12, "n0-2"))
	expect("both run", others)
	s.PutAlloc(alloc("a1", k, 0, "complete", 13, "n0-1"))
	expect("one has finished", []string{"n0-0", "n0-1", "n0-3", "n1-0", "n1-1", "n1-2", "n1-3"})
	if d := cmp.Diff(8, len(free(ledgerOf(t, s, k)))); d != "" {
		t.Errorf("in a ledger without the job: %s", d)
	}
	s.PutJob(rewrite.Gate(pinned))
	s.PutAlloc(alloc("a2", k, 0, "complete", 14, "n0-2"))
	expect("free GPUs after the job was gated again", free(ledgerOf(t, world(2))))
}

// An updated ledger equals a new one.
func TestViewUpdate(t *testing.T) {
	s := world(3)
	v := ledgerOf(t, s)
	s.PutAlloc(alloc("a1", cluster.JobKey{Namespace: "default", ID: "x"}, 1, "running", 5, "n1-0", "n1-3"))
	unhealthy := *s.Nodes["id-2"]
	res, dev := *unhealthy.NodeResources, *unhealthy.NodeResources.Devices[0]
	dev.Instances = append([]*api.NodeDevice{{ID: "n2-0", Healthy: false}}, dev.Instances[1:]...)
	res.Devices = []*api.NodeDeviceResource{&dev}
	unhealthy.NodeResources, unhealthy.ModifyIndex = &res, 6
	s.PutNode(&unhealthy)
	if !v.Update(s, ledgerOptions()) {
		t.Fatal("a new ledger is requested although none is needed")
	}
	if d := cmp.Diff(free(ledgerOf(t, s)), free(v)); d != "" {
		t.Errorf("updated and new differ (-new +updated):\n%s", d)
	}
	if d := cmp.Diff([]string{"n0-0", "n0-1", "n0-2", "n0-3", "n1-1", "n1-2", "n2-1", "n2-2", "n2-3"}, free(v)); d != "" {
		t.Error(d)
	}
	s.DropNode("id-0")
	if v.Update(s, ledgerOptions()) {
		t.Error("a node is gone, and Update reports success")
	}
}
