// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
)

// Members by rack, or by node, of jobs with spread blocks: racks r0 (nodes 0 and
// 1) and r1 (2 and 3), four GPUs per node.
func TestSpread(t *testing.T) {
	rack := func(extra string) string {
		return "spread {\n attribute = \"${meta.rack}\"\n weight = 100\n" + extra + "}\n"
	}
	node := "spread {\n attribute = \"${node.unique.name}\"\n}\n"
	target := func(value string, percent int) string {
		return fmt.Sprintf("target %q {\n percent = %d\n}\n", value, percent)
	}
	distinct := "constraint {\n operator = \"distinct_hosts\"\n value = \"true\"\n}\n"
	for _, tc := range []struct {
		name, extra string
		count, gpus int
		taken       []int // nodes
		policy      pal.PolicyName
		want        map[string]int
	}{
		{name: "no spread", count: 4, gpus: 1, want: map[string]int{"node-0": 4}},
		{name: "over racks", extra: rack(""), count: 2, gpus: 1, want: map[string]int{"node-0": 1, "node-2": 1}},
		{name: "over racks, packed", extra: rack(""), count: 4, gpus: 1, policy: pal.Packed, want: map[string]int{"node-0": 2, "node-2": 2}},
		{name: "over racks, one more", extra: rack(""), count: 3, gpus: 4, want: map[string]int{"node-0": 1, "node-1": 1, "node-2": 1}},
		{name: "as far as it goes", extra: rack(""), count: 3, gpus: 4, taken: []int{1, 2}, want: nil},
		{name: "one rack is full", extra: rack(""), count: 2, gpus: 4, taken: []int{2, 3}, want: map[string]int{"node-0": 1, "node-1": 1}},
		{name: "with targets", extra: rack(target("r0", 25) + target("r1", 75)), count: 4, gpus: 1, want: map[string]int{"node-0": 1, "node-2": 3}},
		{name: "a target and the rest", extra: rack(target("r1", 75)), count: 4, gpus: 1, want: map[string]int{"node-0": 1, "node-2": 3}},
		{name: "all in one", extra: rack(target("r1", 100)), count: 4, gpus: 1, want: map[string]int{"node-2": 4}},
		{name: "over nodes", extra: node, count: 4, gpus: 1, want: map[string]int{"node-0": 1, "node-1": 1, "node-2": 1, "node-3": 1}},
		{name: "over nodes and racks", extra: rack("") + node, count: 2, gpus: 1, want: map[string]int{"node-0": 1, "node-2": 1}},
		{name: "over what no node has", extra: "spread {\n attribute = \"${meta.zone}\"\n}\n", count: 4, gpus: 1, want: map[string]int{"node-0": 4}},
		{name: "one a node", extra: rack(target("r1", 100)) + distinct, count: 3, gpus: 1, want: map[string]int{"node-0": 1, "node-2": 1, "node-3": 1}},
		{name: "a limit is a limit", extra: rack("") + "meta {\n pal_locality = \"rack\"\n}\n", count: 2, gpus: 1, want: map[string]int{"node-0": 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := world(4)
			v := view(t, s)
			for _, n := range tc.taken {
				for k := range 4 {
					v.Cluster.SetTaken(4*n+k, true)
				}
			}
			r, err := v.Request(addJob(t, s, clustertest.Jobspec("j", tc.count, tc.gpus, tc.extra), 5))
			if err != nil {
				t.Fatal(err)
			}
			policy := pal.Policy{Name: pal.PAL}
			if tc.policy != "" {
				policy.Name = tc.policy
			}
			free := v.Cluster.FreeGPUs()
			pl, ok := pal.Place(v.Cluster, r.Gang, policy)
			if ok != (tc.want != nil) || v.Cluster.FreeGPUs() != free {
				t.Fatalf("placed: %v, %d GPUs free of %d", ok, v.Cluster.FreeGPUs(), free)
			}
			var got map[string]int
			if ok {
				got = map[string]int{}
				seen := map[int]bool{}
				for _, m := range pl.Members {
					n, _ := v.Cluster.Group(m.Group)
					got[v.Nodes[n].Name]++
					for _, u := range m.GPUs {
						if seen[u] {
							t.Errorf("GPU %d is given twice", u)
						}
						seen[u] = true
					}
				}
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("members (-want +got):\n%s", d)
			}
		})
	}
}
