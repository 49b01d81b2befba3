// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
)

// gangOfFour is a running gang of four members on node 0, each with one GPU.
func gangOfFour(t *testing.T) (*cluster.State, func(member int, client string)) {
	t.Helper()
	s, index := world(2), uint64(10)
	k := cluster.KeyOf(addJob(t, s, clustertest.Jobspec("gang", 4, 1, ""), 5))
	group := *s.Jobs[k].TaskGroups[0].Name
	put := func(member int, client string) {
		index++
		s.PutAlloc(&cluster.Alloc{
			ID: fmt.Sprint("a", member), Job: k, Group: group, Node: "id-0", Desired: api.AllocDesiredStatusRun, Client: client,
			GPUs: []string{fmt.Sprint("n0-", member)}, CreateIndex: 6, ModifyIndex: index,
		})
	}
	for member := range 4 {
		put(member, api.AllocClientStatusRunning)
	}
	return s, put
}

// The GPUs of a gang that is ending become free all at once, so that another gang can choose from
// all of them. An updated ledger does so, too.
func TestEndingGPUsComeFreeTogether(t *testing.T) {
	s, put := gangOfFour(t)
	o := Options{Locality: pal.TwoTier(1.7)}
	v, err := New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	free := func() int {
		now = now.Add(time.Millisecond)
		s.Elapse(now)
		o.Ending = s.Ending(now)
		if !v.Update(s, o) {
			t.Fatal("a new ledger is requested")
		}
		return v.Cluster.FreeGPUs()
	}
	got := []int{free()}
	for member := range 4 {
		put(member, api.AllocClientStatusComplete)
		got = append(got, free())
	}
	if d := cmp.Diff([]int{4, 4, 4, 4, 8}, got); d != "" {
		t.Errorf("free GPUs after each end (-want +got):\n%s", d)
	}
}

// Time alone can reduce the GPUs that a gang holds. The ledger reports that once.
func TestShifted(t *testing.T) {
	s, put := gangOfFour(t)
	now := time.Unix(1000, 0)
	options := func() Options {
		s.Elapse(now)
		return Options{Locality: pal.TwoTier(1.7), Ending: s.Ending(now)}
	}
	v, err := New(s, options())
	if err != nil {
		t.Fatal(err)
	}
	k := s.SortedJobs()[0]
	for _, c := range []struct {
		name string
		do   func()
		want []cluster.JobKey
	}{
		{"the ledger is new", func() {}, []cluster.JobKey{k}},
		{"nothing", func() {}, nil},
		{"a member ends, and its GPU is kept for a moment", func() { put(1, "complete") }, nil},
		{"the moment is over", func() { now = now.Add(time.Minute) }, []cluster.JobKey{k}},
		{"nothing more", func() {}, nil},
		{"a member ends as the nodes change", func() {
			put(2, "complete")
			now = now.Add(time.Minute)
			for _, n := range s.Nodes {
				other := *n
				other.SchedulingEligibility, other.ModifyIndex = "ineligible", n.ModifyIndex+1
				s.PutNode(&other)
			}
		}, []cluster.JobKey{k}},
	} {
		c.do()
		if !v.Update(s, options()) {
			t.Fatalf("%s: a new ledger is requested", c.name)
		}
		if d := cmp.Diff(c.want, v.TakeShifted()); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}
