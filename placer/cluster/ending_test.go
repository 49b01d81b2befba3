// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// gangOfFour is a gang of four running members on node 0, with one GPU each.
func gangOfFour(t *testing.T) (*State, func(member int, client string)) {
	t.Helper()
	s, index := world(2), uint64(20)
	k := KeyOf(addJob(t, s, clustertest.Jobspec("gang", 4, 1, ""), 5))
	group := *s.Jobs[k].TaskGroups[0].Name
	put := func(member int, client string) {
		index++
		desired := api.AllocDesiredStatusRun
		if rewrite.Stopped(s.Jobs[k]) {
			desired = api.AllocDesiredStatusStop
		}
		s.PutAlloc(&Alloc{
			ID: fmt.Sprint("a", member), Job: k, Group: group, Node: "id-0", Desired: desired, Client: client,
			GPUs: []string{fmt.Sprint("n0-", member)}, CreateIndex: 6, ModifyIndex: index,
		})
	}
	for member := range 4 {
		put(member, api.AllocClientStatusRunning)
	}
	return s, put
}

// stopGang stops the job and its running members, as nomad job stop does.
func stopGang(s *State, put func(member int, client string)) {
	stopped := *s.Jobs[JobKey{"default", "gang"}]
	stopped.Stop, stopped.JobModifyIndex = new(true), new(uint64(19))
	s.PutJob(&stopped)
	for member := range 4 {
		put(member, api.AllocClientStatusRunning)
	}
}

// The GPUs of ended members belong to the gang until the other members have ended, too, or
// endWithin has passed.
func TestEnding(t *testing.T) {
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
			s.Elapse(start)
			put(2, "complete")
			return endWithin - time.Millisecond
		}, []string{"n0-1", "n0-2"}},
		{"too long for one gang", func(s *State, put func(int, string)) time.Duration {
			put(1, "complete")
			s.Elapse(start)
			return endWithin
		}, nil},
		{"the next one of an array", func(s *State, put func(int, string)) time.Duration {
			put(1, "complete")
			s.Elapse(start)
			s.Elapse(start.Add(endWithin))
			put(2, "complete")
			return endWithin + time.Millisecond
		}, nil},
		{"all have ended", func(s *State, put func(int, string)) time.Duration {
			for member := range 4 {
				put(member, "complete")
			}
			return 0
		}, nil},
		{"somebody has stopped the job, and two of four have ended", func(s *State, put func(int, string)) time.Duration {
			stopGang(s, put)
			put(1, "complete")
			put(3, "failed")
			return 0
		}, []string{"n0-1", "n0-3"}},
		{"somebody has stopped the job, and one member ends too late", func(s *State, put func(int, string)) time.Duration {
			stopGang(s, put)
			put(1, "complete")
			s.Elapse(start)
			return endWithin
		}, nil},
		{"somebody has stopped the job, and all have ended", func(s *State, put func(int, string)) time.Duration {
			stopGang(s, put)
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
			if d := cmp.Diff(c.want, s.Ending(start.Add(after))[JobKey{"default", "gang"}]); d != "" {
				t.Errorf("GPUs held until the gang has ended (-want +got):\n%s", d)
			}
		})
	}
}
