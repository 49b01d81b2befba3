// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"fmt"
	"slices"
	"testing"
)

// TestRoomForWide: a gang leaves the empty node to a wide gang if, and only if, a fuller node
// costs little more.
func TestRoomForWide(t *testing.T) {
	for name, tc := range map[string]struct {
		score PMScore // of the fuller node's GPUs
		tight float64
		gpus  int
		want  int // index of the node
		walk  string
	}{
		"as published":            {1, 0, 2, 0, "1 taken=true passed over=false "},
		"the fuller node":         {1, 0.1, 2, 1, ""},
		"one GPU":                 {1, 0.1, 1, 1, ""},
		"a little slower":         {1.05, 0.1, 2, 1, "1 taken=false passed over=true 1.05 taken=true passed over=false "},
		"much slower":             {1.2, 0.1, 2, 0, ""},
		"does not fit there":      {1, 0.1, 4, 0, "1 taken=true passed over=false "},
		"slower and as published": {1.05, 0, 2, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := make([]Node, 2)
			for n, score := range []PMScore{1, tc.score} {
				nodes[n] = evenNode(fmt.Sprint(n), score)
			}
			c, err := NewCluster(nodes, TwoTier(1.7))
			if err != nil {
				t.Fatal(err)
			}
			for i := range 5 { // 3 GPUs of the second node stay free
				c.SetTaken(8+i, true)
			}
			g, p := SingleGPUs("g", ClassA, tc.gpus), Policy{Name: PAL, RoomForWide: tc.tight}
			pl, ok := Place(c, g, p)
			if !ok || pl.Members[0].Group != tc.want || pl.Tier > TierNode {
				t.Errorf("placed on %v, want node %d", pl, tc.want)
			}
			said := ""
			for _, e := range Explain(c, g, p).Walk {
				said += fmt.Sprintf("%g taken=%t passed over=%t ", e.Bin, e.Taken, e.PassedOver)
			}
			if said != tc.walk && tc.walk != "" {
				t.Errorf("walk: %s", said)
			}
		})
	}
}

// A gang that needs several nodes takes the fewest that hold it at little more than the best bin.
// It breaks up no empty node if other nodes have room.
func TestRoomForWideAcrossNodes(t *testing.T) {
	for name, tc := range map[string]struct {
		scores []PMScore // of each node's GPUs
		free   []int     // free GPUs on each node, of 8
		tight  float64
		gpus   int
		want   []int // GPUs on each node
	}{
		"whole nodes, then the tightest node for the rest": {[]PMScore{1, 1, 1, 1}, []int{8, 3, 5, 2}, 0.1, 10, []int{8, 0, 0, 2}},
		"the rest on a larger node":                        {[]PMScore{1, 1, 1, 1}, []int{8, 3, 5, 2}, 0.1, 12, []int{8, 0, 4, 0}},
		"no empty node broken up":                          {[]PMScore{1, 1, 1, 1}, []int{8, 8, 4, 0}, 0.1, 12, []int{8, 0, 4, 0}},
		"all nodes":                                        {[]PMScore{1, 1, 1, 1}, []int{8, 3, 5, 2}, 0.1, 18, []int{8, 3, 5, 2}},
		"no node holds the rest alone":                     {[]PMScore{1, 1, 1, 1}, []int{5, 5, 2, 2}, 0.1, 11, []int{5, 5, 1, 0}},
		"among equal nodes, the best":                      {[]PMScore{1.04, 1, 1.02, 1}, []int{8, 8, 8, 4}, 0.1, 20, []int{0, 8, 8, 4}},
		"among equal nodes for the rest":                   {[]PMScore{1.04, 1, 1.02, 1}, []int{3, 8, 3, 2}, 0.1, 11, []int{0, 8, 3, 0}},
		"a little slower":                                  {[]PMScore{1.04, 1, 1, 1}, []int{8, 5, 5, 5}, 0.1, 10, []int{8, 2, 0, 0}},
		"more than a little slower":                        {[]PMScore{1.08, 1, 1, 1}, []int{8, 5, 5, 5}, 0.1, 10, []int{0, 5, 5, 0}},
		"as published":                                     {[]PMScore{1.04, 1, 1, 1}, []int{8, 5, 5, 5}, 0, 10, []int{0, 5, 5, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes []Node
			for n, score := range tc.scores {
				nodes = append(nodes, evenNode(fmt.Sprint(n), score))
			}
			c, err := NewCluster(nodes, TwoTier(1.7))
			if err != nil {
				t.Fatal(err)
			}
			for n, free := range tc.free {
				for i := free; i < 8; i++ {
					c.SetTaken(8*n+i, true)
				}
			}
			g, p := SingleGPUs("g", ClassA, tc.gpus), Policy{Name: PAL, RoomForWide: tc.tight}
			pl, ok := Place(c, g, p)
			if !ok {
				t.Fatal("it does not fit")
			}
			got := make([]int, len(nodes))
			for _, m := range pl.Members {
				got[m.Group]++
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%v GPUs on the nodes, want %v", got, tc.want)
			}
			walk := Explain(c, g, p).Walk
			if last := walk[len(walk)-1]; !last.Taken || last.Bin != pl.PMScore {
				t.Errorf("the walk ends with %+v, the gang's PM score is %v", last, pl.PMScore)
			}
		})
	}
}

// evenNode is a node of 8 GPUs with one PM score.
func evenNode(id string, score PMScore) Node {
	var gpus []GPU
	for i := range 8 {
		u := GPU{ID: id + "/" + fmt.Sprint(i)}
		for k := range u.Scores {
			u.Scores[k], u.Binned[k] = score, score
		}
		gpus = append(gpus, u)
	}
	return Node{ID: id, Groups: []DeviceGroup{{Name: "gpu", GPUs: gpus}}}
}
