// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
)

// gangOfFour are members on one GPU each of node 0, all of which run.
func gangOfFour(t *testing.T) (*State, func(member int, client string)) {
	t.Helper()
	s, index := world(2), uint64(10)
	k := KeyOf(addJob(t, s, jobspec("gang", 4, 1, ""), 5))
	group := *s.Jobs[k].TaskGroups[0].Name
	put := func(member int, client string) {
		index++
		s.PutAlloc(&Alloc{
			ID: fmt.Sprint("a", member), Job: k, Group: group, Node: "id-0", Desired: api.AllocDesiredStatusRun, Client: client,
			GPUs: []string{fmt.Sprint("n0-", member)}, CreateIndex: 6, ModifyIndex: index,
		})
	}
	for member := range 4 {
		put(member, api.AllocClientStatusRunning)
	}
	return s, put
}

// The GPUs of members that have ended count as their gang's until the others
// have ended, too, or some seconds have passed.
func TestCompleting(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, c := range []struct {
		name string
		play func(s *State, put func(int, string)) time.Duration // since the first look
		want []string
	}{
		{"all run", func(*State, func(int, string)) time.Duration { return 0 }, nil},
		{"two of four have ended", func(_ *State, put func(int, string)) time.Duration {
			put(1, "complete")
			put(3, "complete")
			return 0
		}, []string{"n0-1", "n0-3"}},
		{"a moment later", func(s *State, put func(int, string)) time.Duration {
			put(1, "complete")
			s.Completing(start)
			put(2, "complete")
			return completeWithin - time.Millisecond
		}, []string{"n0-1", "n0-2"}},
		{"too long for one gang", func(s *State, put func(int, string)) time.Duration {
			put(1, "complete")
			s.Completing(start)
			return completeWithin
		}, nil},
		{"the next one of an array", func(s *State, put func(int, string)) time.Duration {
			put(1, "complete")
			s.Completing(start)
			s.Completing(start.Add(completeWithin))
			put(2, "complete")
			return completeWithin + time.Millisecond
		}, nil},
		{"all have ended", func(s *State, put func(int, string)) time.Duration {
			for member := range 4 {
				put(member, "complete")
			}
			return 0
		}, nil},
		{"one has failed", func(s *State, put func(int, string)) time.Duration {
			put(0, "failed")
			return 0
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, put := gangOfFour(t)
			after := c.play(s, put)
			if d := cmp.Diff(c.want, s.Completing(start.Add(after))[JobKey{"default", "gang"}]); d != "" {
				t.Errorf("GPUs that wait for their gang's end (-want +got):\n%s", d)
			}
		})
	}
}

// A gang does not get some of such GPUs: it gets all or none of them to choose
// from, in a view that is kept up to date, too.
func TestCompletingGPUsComeFreeTogether(t *testing.T) {
	s, put := gangOfFour(t)
	o := ViewOptions{Locality: pal.TwoTier(1.7)}
	v, err := s.View(o)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	free := func() int {
		now = now.Add(time.Millisecond)
		o.Completing = s.Completing(now)
		if !v.Update(s, o) {
			t.Fatal("the view is not kept")
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

// Time alone has a gang hold fewer GPUs than before: who keeps books of it is told,
// once.
func TestShifted(t *testing.T) {
	s, put := gangOfFour(t)
	now := time.Unix(1000, 0)
	options := func() ViewOptions { return ViewOptions{Locality: pal.TwoTier(1.7), Completing: s.Completing(now)} }
	v, err := s.View(options())
	if err != nil {
		t.Fatal(err)
	}
	k := s.SortedJobs()[0]
	for _, c := range []struct {
		name string
		do   func()
		want []JobKey
	}{
		{"the view is new", func() {}, []JobKey{k}},
		{"nothing", func() {}, nil},
		{"a member ends, and its GPU is kept for a moment", func() { put(1, "complete") }, nil},
		{"the moment is over", func() { now = now.Add(completeWithin) }, []JobKey{k}},
		{"nothing more", func() {}, nil},
		{"a member ends as the nodes change", func() {
			put(2, "complete")
			now = now.Add(completeWithin)
			for _, n := range s.Nodes {
				other := *n
				other.SchedulingEligibility, other.ModifyIndex = "ineligible", n.ModifyIndex+1
				s.putNode(&other)
			}
		}, []JobKey{k}},
	} {
		c.do()
		if !v.Update(s, options()) {
			t.Fatalf("%s: a new view is wanted", c.name)
		}
		if d := cmp.Diff(c.want, v.Shifted()); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}
