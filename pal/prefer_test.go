// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"fmt"
	"slices"
	"testing"
)

// If the whole gang fits on the GPUs that it prefers, the preference comes before cost. Otherwise
// any eligible GPU will do.
func TestPreferences(t *testing.T) {
	var ns []Node
	for n, score := range []PMScore{1, 2, 3} {
		g := DeviceGroup{Name: "m"}
		for k := range 4 {
			u := GPU{ID: fmt.Sprintf("%d-%d", n, k)}
			for c := range u.Scores {
				u.Scores[c], u.Binned[c], u.Classes[c] = score, score, uint8(score)
			}
			g.GPUs = append(g.GPUs, u)
		}
		ns = append(ns, Node{ID: fmt.Sprint(n), Name: fmt.Sprint(n), Datacenter: "dc", Groups: []DeviceGroup{g}})
	}
	c, err := NewCluster(ns, TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	all := []bool{true, true, true}
	for _, tc := range []struct {
		gpus   int
		prefer [][]bool
		want   []int // indices of nodes
	}{
		{gpus: 2, want: []int{0}},
		{gpus: 2, prefer: [][]bool{{false, false, true}}, want: []int{2}},
		{gpus: 2, prefer: [][]bool{{false, false, false}, {false, true, true}}, want: []int{1}},
		{gpus: 6, prefer: [][]bool{{false, false, true}, {false, true, true}}, want: []int{1, 2}},
		{gpus: 6, prefer: [][]bool{{false, false, true}}, want: []int{0, 1}},
	} {
		g := SingleGPUs("g", ClassA, tc.gpus)
		g.MemberSets[0].Eligible, g.MemberSets[0].Prefer = all, tc.prefer
		pl, ok := Place(c, g, Policy{Name: PAL})
		var got []int
		for _, m := range pl.Members {
			n, _ := c.Group(m.Group)
			got = append(got, n)
		}
		slices.Sort(got)
		if got = slices.Compact(got); !ok || !slices.Equal(got, tc.want) {
			t.Errorf("%d GPUs, %v: on nodes %v, want %v", tc.gpus, tc.prefer, got, tc.want)
		}
		if d := Explain(c, g, Policy{Name: PAL}); d.Chosen == nil || d.Chosen.Cost != pl.Cost() {
			t.Errorf("%d GPUs, %v: explained as %+v, placed at cost %v", tc.gpus, tc.prefer, d.Chosen, pl.Cost())
		}
	}
}
