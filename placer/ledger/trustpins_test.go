// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package ledger

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// pinnedTo is a job with pins to these GPUs. Any user can write such pins.
func pinnedTo(t *testing.T, s *cluster.State, id string, count, gpus int, index uint64, nodes []string, ids ...string) *api.Job {
	t.Helper()
	job := addJob(t, cluster.NewState(), clustertest.Jobspec(id, count, gpus, ""), index)
	pinned, err := rewrite.Pin(job, rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "g", Nodes: nodes, GPUs: ids}}}, rewrite.Racks{})
	if err != nil {
		t.Fatal(err)
	}
	s.PutJob(pinned)
	return pinned
}

// Pins that the placer did not write reserve no GPU. Only when the placer starts do they, and then
// at most as many as the job could use.
func TestForgedPins(t *testing.T) {
	all := []string{"n0-0", "n0-1", "n0-2", "n0-3", "n1-0", "n1-1", "n1-2", "n1-3"}
	both := []string{"id-0", "id-1"}
	k := cluster.JobKey{Namespace: "default", ID: "j"}
	for _, c := range []struct {
		name string
		do   func(s *cluster.State)
		free int
	}{
		{"one GPU, all ids, at the beginning", func(s *cluster.State) { pinnedTo(t, s, "j", 1, 1, 1, both, all...) }, 8},
		{"as many as it takes, at the beginning", func(s *cluster.State) { pinnedTo(t, s, "j", 2, 1, 1, both, "n0-0", "n1-0") }, 6},
		{"on a node that its pins do not name", func(s *cluster.State) { pinnedTo(t, s, "j", 2, 1, 1, both[:1], "n0-0", "n1-0") }, 7},
		{"as many as it takes, after the start", func(s *cluster.State) {
			s.OnlyOwnPins()
			pinnedTo(t, s, "j", 2, 1, 1, both, "n0-0", "n1-0")
		}, 8},
		{"registered again and again", func(s *cluster.State) {
			pinnedTo(t, s, "j", 2, 1, 1, both, "n0-0", "n1-0")
			s.OnlyOwnPins()
			for i := range uint64(5) {
				pinnedTo(t, s, "j", 2, 1, 2+i, both, "n0-0", "n1-0")
			}
		}, 8},
		{"ours", func(s *cluster.State) {
			s.OnlyOwnPins()
			pinnedTo(t, s, "j", 2, 1, 1, both, "n0-0", "n1-0")
			s.Own(k, []string{"n1-0", "n0-0"})
		}, 6},
		{"ours, registered again by its author", func(s *cluster.State) {
			s.OnlyOwnPins()
			s.Own(k, []string{"n1-0", "n0-0"})
			pinnedTo(t, s, "j", 2, 1, 1, both, "n0-0", "n1-0")
			pinnedTo(t, s, "j", 2, 1, 2, both, "n0-0", "n1-0")
		}, 6},
		{"ours, and then pins to other GPUs", func(s *cluster.State) {
			s.OnlyOwnPins()
			s.Own(k, []string{"n1-0", "n0-0"})
			pinnedTo(t, s, "j", 2, 1, 1, both, "n0-0", "n1-1")
		}, 8},
		{"ours, and then more than the job takes", func(s *cluster.State) {
			s.OnlyOwnPins()
			s.Own(k, all)
			pinnedTo(t, s, "j", 2, 1, 1, both, all...)
		}, 8},
		{"ours, and then purged", func(s *cluster.State) {
			s.OnlyOwnPins()
			pinnedTo(t, s, "j", 2, 1, 1, both, "n0-0", "n1-0")
			s.Own(k, []string{"n1-0", "n0-0"})
			s.DropJob(k)
			pinnedTo(t, s, "j", 2, 1, 2, both, "n0-0", "n1-0")
		}, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := world(2)
			v := ledgerOf(t, s)
			c.do(s)
			if got := len(free(ledgerOf(t, s))); got != c.free {
				t.Errorf("%d GPUs are free, want %d", got, c.free)
			}
			if v.Update(s, ledgerOptions()); len(free(v)) != c.free {
				t.Errorf("after an update %d GPUs are free, want %d", len(free(v)), c.free)
			}
			after, pins := s.Next(), rewrite.Pins{Groups: []rewrite.GroupPins{{GPUs: all}}}
			after.Follow(s)
			if nobody := (cluster.JobKey{Namespace: "default", ID: "nobody"}); after.TrustsPins(nobody, pins) != s.TrustsPins(nobody, pins) {
				t.Error("a full read changes which pins are trusted")
			}
		})
	}
}

// A job owns the GPUs of its allocations, even if another job's pins name them.
func TestPinsGoAfterAllocations(t *testing.T) {
	s := world(1)
	pinnedTo(t, s, "a", 1, 1, 1, []string{"id-0"}, "n0-0")
	v := ledgerOf(t, s)
	s.PutAlloc(alloc("x", cluster.JobKey{Namespace: "default", ID: "z"}, 0, "running", 5, "n0-0"))
	v.Update(s, ledgerOptions())
	for how, v := range map[string]*Ledger{"followed": v, "rebuilt": ledgerOf(t, s)} {
		i := v.Cluster.Find("n0-0")
		if d := cmp.Diff(cluster.JobKey{Namespace: "default", ID: "z"}, v.Owner(i)); d != "" {
			t.Errorf("%s (-want +got):\n%s", how, d)
		}
	}
	s.PutAlloc(alloc("x", cluster.JobKey{Namespace: "default", ID: "z"}, 0, "complete", 6, "n0-0"))
	v.Update(s, ledgerOptions())
	if got := v.Owner(v.Cluster.Find("n0-0")).ID; got != "a" {
		t.Errorf("afterwards the GPU belongs to %q", got)
	}
}

// When one member of a wide gang changes, the ledger computes the promises of its pins in one pass,
// not with a pass over all of its GPUs for each member.
func TestClaimsOfWideGang(t *testing.T) {
	s := cluster.NewState()
	var ids []string
	for i := range 1000 {
		ids = append(ids, fmt.Sprintf("gpu-%04d", i))
	}
	job := pinnedTo(t, s, "j", 125, 8, 1, []string{"n"}, ids...)
	for i := range 124 {
		s.PutAlloc(&cluster.Alloc{ID: fmt.Sprint(i), Job: cluster.KeyOf(job), Group: "g", Node: "n", Desired: "run", Client: "running", GPUs: ids[8*i : 8*i+8]})
	}
	if cs := promises(s, job); len(cs) != 1 || !slices.Equal(cs[0].gpus, ids[992:]) {
		t.Fatalf("promises %v, want the last 8 GPUs", cs)
	}
	if n := testing.AllocsPerRun(3, func() { promises(s, job) }); n > 100 {
		t.Errorf("%v memory allocations", n)
	}
}
