// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// pinnedTo is a job with pins to these GPUs, as anybody can write them.
func pinnedTo(t *testing.T, s *State, id string, count, gpus int, index uint64, nodes []string, ids ...string) *api.Job {
	t.Helper()
	job := addJob(t, NewState(), jobspec(id, count, gpus, ""), index)
	pinned, err := rewrite.Pin(job, rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "g", Nodes: nodes, GPUs: ids}}}, rewrite.Racks{})
	if err != nil {
		t.Fatal(err)
	}
	s.PutJob(pinned)
	return pinned
}

// Pins that we did not write keep no GPU from others, or just at the beginning no
// more than the job could use.
func TestForgedPins(t *testing.T) {
	all := []string{"n0-0", "n0-1", "n0-2", "n0-3", "n1-0", "n1-1", "n1-2", "n1-3"}
	both := []string{"id-0", "id-1"}
	k := JobKey{"default", "j"}
	for _, c := range []struct {
		name string
		do   func(s *State)
		free int
	}{
		{"one GPU, all ids, at the beginning", func(s *State) { pinnedTo(t, s, "j", 1, 1, 1, both, all...) }, 8},
		{"as many as it takes, at the beginning", func(s *State) { pinnedTo(t, s, "j", 2, 1, 1, both, "n0-0", "n1-0") }, 6},
		{"on nodes that it does not name", func(s *State) { pinnedTo(t, s, "j", 2, 1, 1, both[:1], "n0-0", "n1-0") }, 7},
		{"as many as it takes, later", func(s *State) {
			s.OnlyOwnPins()
			pinnedTo(t, s, "j", 2, 1, 1, both, "n0-0", "n1-0")
		}, 8},
		{"registered again and again", func(s *State) {
			pinnedTo(t, s, "j", 2, 1, 1, both, "n0-0", "n1-0")
			s.OnlyOwnPins()
			for i := range uint64(5) {
				pinnedTo(t, s, "j", 2, 1, 2+i, both, "n0-0", "n1-0")
			}
		}, 8},
		{"ours", func(s *State) {
			s.OnlyOwnPins()
			pinnedTo(t, s, "j", 2, 1, 1, both, "n0-0", "n1-0")
			s.Own(k, []string{"n1-0", "n0-0"})
		}, 6},
		{"ours, registered again by its author", func(s *State) {
			s.OnlyOwnPins()
			s.Own(k, []string{"n1-0", "n0-0"})
			pinnedTo(t, s, "j", 2, 1, 1, both, "n0-0", "n1-0")
			pinnedTo(t, s, "j", 2, 1, 2, both, "n0-0", "n1-0")
		}, 6},
		{"ours, and then others", func(s *State) {
			s.OnlyOwnPins()
			s.Own(k, []string{"n1-0", "n0-0"})
			pinnedTo(t, s, "j", 2, 1, 1, both, "n0-0", "n1-1")
		}, 8},
		{"ours, and then more than the job takes", func(s *State) {
			s.OnlyOwnPins()
			s.Own(k, all)
			pinnedTo(t, s, "j", 2, 1, 1, both, all...)
		}, 8},
		{"ours, and then purged", func(s *State) {
			s.OnlyOwnPins()
			pinnedTo(t, s, "j", 2, 1, 1, both, "n0-0", "n1-0")
			s.Own(k, []string{"n1-0", "n0-0"})
			s.dropJob(k)
			pinnedTo(t, s, "j", 2, 1, 2, both, "n0-0", "n1-0")
		}, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := world(2)
			v := view(t, s)
			c.do(s)
			if got := len(free(view(t, s))); got != c.free {
				t.Errorf("%d GPUs are free, want %d", got, c.free)
			}
			if v.Update(s, options()); len(free(v)) != c.free {
				t.Errorf("followed: %d GPUs are free, want %d", len(free(v)), c.free)
			}
			after := NewState()
			after.keepOwnPins(s)
			if after.onlyOwn != s.onlyOwn {
				t.Error("a full read forgets whose pins count")
			}
		})
	}
}

// A GPU that a job has is its own, whoever's pins name it.
func TestPinsGoAfterAllocations(t *testing.T) {
	s := world(1)
	pinnedTo(t, s, "a", 1, 1, 1, []string{"id-0"}, "n0-0")
	v := view(t, s)
	s.PutAlloc(alloc("x", JobKey{"default", "z"}, 0, "running", 5, "n0-0"))
	v.Update(s, options())
	for how, v := range map[string]*View{"followed": v, "rebuilt": view(t, s)} {
		i := v.Cluster.Find("n0-0")
		if d := cmp.Diff(JobKey{"default", "z"}, v.Owner(i)); d != "" {
			t.Errorf("%s: (-want +got)\n%s", how, d)
		}
	}
	s.PutAlloc(alloc("x", JobKey{"default", "z"}, 0, "complete", 6, "n0-0"))
	v.Update(s, options())
	if got := v.Owner(v.Cluster.Find("n0-0")).ID; got != "a" {
		t.Errorf("afterwards it is %q's", got)
	}
}

// What the pins of a wide gang keep is worked out with each change of one of its members: in one
// pass, not in one over all of its GPUs for each member.
func TestClaimsOfWideGang(t *testing.T) {
	s := NewState()
	var ids []string
	for i := range 1000 {
		ids = append(ids, fmt.Sprintf("gpu-%04d", i))
	}
	job := pinnedTo(t, s, "j", 125, 8, 1, []string{"n"}, ids...)
	for i := range 124 {
		s.PutAlloc(&Alloc{ID: fmt.Sprint(i), Job: KeyOf(job), Group: "g", Node: "n", Desired: "run", Client: "running", GPUs: ids[8*i : 8*i+8]})
	}
	if cs := s.promises(job); len(cs) != 1 || !slices.Equal(cs[0].gpus, ids[992:]) {
		t.Fatalf("promises %v, want the last 8 GPUs", cs)
	}
	if n := testing.AllocsPerRun(3, func() { s.promises(job) }); n > 100 {
		t.Errorf("%v memory allocations", n)
	}
}
