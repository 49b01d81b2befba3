// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// scored returns one node for each score. Each node has this number of GPUs, all with the node's
// score.
func scored(gpus int, scores ...pal.PMScore) []pal.Node {
	nodes := make([]pal.Node, len(scores))
	for n, score := range scores {
		us := make([]pal.GPU, gpus)
		for i := range us {
			us[i].ID = fmt.Sprint(n, "-", i)
			for k := range us[i].Scores {
				us[i].Scores[k], us[i].Binned[k] = score, score
			}
		}
		nodes[n] = pal.Node{ID: fmt.Sprint(n), Groups: []pal.DeviceGroup{{Name: "gpu", GPUs: us}}}
	}
	return nodes
}

// runOn adds a running gang of one-GPU members on these GPUs, which will end after an hour.
func runOn(t *testing.T, q *Queue, c *pal.Cluster, id string, group int, gpus ...int) {
	g := pal.SingleGPUs(id, pal.ClassA, len(gpus))
	var ms []pal.Member
	for _, u := range gpus {
		ms = append(ms, pal.Member{Group: group, GPUs: []int{u}})
	}
	pl := pal.Predict(c, g, ms)
	c.Take(g, pl)
	j := Job{ID: id, Gang: g, Estimate: time.Duration(float64(time.Hour) / pl.Cost())}
	if err := q.Restore(j, pl, 0); err != nil {
		t.Fatal(err)
	}
}

// TestReservationKeepsFastGPUs: free GPUs are reserved for the head only if the GPUs that become
// free later would slow the head down.
func TestReservationKeepsFastGPUs(t *testing.T) {
	for name, tc := range map[string]struct {
		other pal.PMScore // PM score of the node that is completely in use
		want  int         // number of gangs that start while the head waits
	}{"slower": {1.5, 0}, "as fast": {1, 1}} {
		t.Run(name, func(t *testing.T) {
			q, err := New(Options{Order: FIFO, Backfill: BackfillReserved, Placement: pal.Policy{Name: pal.PAL}})
			if err != nil {
				t.Fatal(err)
			}
			c, err := pal.NewCluster(scored(4, 1, tc.other), pal.TwoTier(1.7))
			if err != nil {
				t.Fatal(err)
			}
			runOn(t, q, c, "one", 0, 0)
			runOn(t, q, c, "whole", 1, 4, 5, 6, 7)
			for i, gpus := range []int{4, 1} {
				j := Job{ID: fmt.Sprint("job", i), Gang: pal.SingleGPUs(fmt.Sprint("job", i), pal.ClassA, gpus), Estimate: 9 * time.Hour}
				if err := q.Submit(0, j); err != nil {
					t.Fatal(err)
				}
			}
			if got := q.Decide(0, c); len(got) != tc.want {
				t.Errorf("decided %v, want %d starts", got, tc.want)
			}
		})
	}
}

// TestOutliersThatAreNeeded: a gang that fits nowhere without outliers uses them, even if the
// cluster has enough other GPUs.
func TestOutliersThatAreNeeded(t *testing.T) {
	nodes := scored(8, 1, 1, 1)
	for n := range 2 {
		for k := range nodes[n].Groups[0].GPUs[0].Scores {
			nodes[n].Groups[0].GPUs[0].Scores[k] = 3
		}
	}
	q, err := New(Default())
	if err != nil {
		t.Fatal(err)
	}
	c, err := pal.NewCluster(nodes, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	gang := pal.Gang{ID: "wide", Class: pal.ClassA, MemberSets: []pal.MemberSet{{Members: 2, GPUs: 8}}}
	if err := q.Submit(0, Job{ID: "wide", Gang: gang}); err != nil {
		t.Fatal(err)
	}
	if got := q.Decide(0, c); len(got) != 1 || got[0].Kind != Start {
		t.Errorf("decided %v, want a start", got)
	}
}
