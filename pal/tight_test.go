// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"fmt"
	"testing"
)

// TestTight: a gang leaves the empty node to a wide one if a fuller node costs
// little more, and only then.
func TestTight(t *testing.T) {
	for name, tc := range map[string]struct {
		score PMScore // of the GPUs of the fuller node
		tight float64
		gpus  int
		want  int // node
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
				var gpus []GPU
				for i := range 8 {
					u := GPU{ID: fmt.Sprint(n, i)}
					for k := range u.Scores {
						u.Scores[k], u.Binned[k] = score, score
					}
					gpus = append(gpus, u)
				}
				nodes[n] = Node{ID: fmt.Sprint(n), Groups: []DeviceGroup{{Name: "gpu", GPUs: gpus}}}
			}
			c, err := NewCluster(nodes, TwoTier(1.7))
			if err != nil {
				t.Fatal(err)
			}
			for i := range 5 { // 3 of the second node stay free
				c.SetTaken(8+i, true)
			}
			g, p := SingleGPUs("g", ClassA, tc.gpus), Policy{Name: PAL, Tight: tc.tight}
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
