// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal_test

import (
	"fmt"

	"github.com/nomad-pal/nomad-pal/pal"
)

// twoNodes is a cluster of two nodes with four GPUs each. The third GPU of the
// first node is an outlier: it is 2.6 times slower than the median.
func twoNodes() *pal.Cluster {
	var nodes []pal.Node
	for i, scores := range [][]pal.PMScore{{1, 1, 2.6, 1}, {1.01, 0.99, 1, 1}} {
		name := fmt.Sprint("node", i)
		group := pal.DeviceGroup{Name: "nvidia/gpu/H200"}
		for j, s := range scores {
			bin := max(1, s) // package profile computes it
			group.GPUs = append(group.GPUs, pal.GPU{
				ID:     fmt.Sprintf("%s-gpu%d", name, j),
				Scores: [pal.NumClasses]pal.PMScore{s, s, s, s},
				Binned: [pal.NumClasses]pal.PMScore{bin, bin, bin, bin},
			})
		}
		nodes = append(nodes, pal.Node{ID: name, Name: name, Groups: []pal.DeviceGroup{group}})
	}
	c, err := pal.NewCluster(nodes, pal.TwoTier(1.7)) // a gang across nodes is 1.7 times slower
	if err != nil {
		panic(err)
	}
	return c
}

// A gang of four GPUs fits on either node. Packed takes the first node, which has the outlier;
// PAL takes the other.
func ExamplePlace() {
	c, gang := twoNodes(), pal.SingleGPUs("train", pal.ClassA, 4)
	for _, policy := range []pal.PolicyName{pal.Packed, pal.PAL} {
		p, ok := pal.Place(c, gang, pal.Policy{Name: policy})
		fmt.Printf("%s: placed %v on GPUs %v, cost %.2f\n", policy, ok, p.GPUs(), p.Cost())
	}
	// Output:
	// packed: placed true on GPUs [0 1 2 3], cost 2.60
	// pal: placed true on GPUs [4 5 6 7], cost 1.01
}

// Explain shows why a gang is on its GPUs, or why it waits.
func ExampleExplain() {
	c, pol := twoNodes(), pal.Policy{Name: pal.PAL}
	first := pal.SingleGPUs("first", pal.ClassA, 4)
	p, _ := pal.Place(c, first, pol)
	c.Take(first, p)

	d := pal.Explain(c, pal.SingleGPUs("second", pal.ClassA, 3), pol)
	for _, e := range d.Walk {
		fmt.Printf("bin %.2f within a %s: product %.2f, %d GPUs free, taken %v\n", e.Bin, e.Tier, e.Product, e.Free, e.Taken)
	}
	fmt.Printf("chosen: %s, tier %s, cost %.2f\n", d.Chosen.Members[0].Node, d.Chosen.Tier, d.Chosen.Cost)

	d = pal.Explain(c, pal.SingleGPUs("third", pal.ClassA, 6), pol)
	fmt.Println("third:", d.Reason)
	// Output:
	// bin 1.00 within a node: product 1.00, 3 GPUs free, taken true
	// chosen: node0, tier node, cost 1.00
	// third: needs 6 GPUs; 4 of 8 that match are free (4 allocated)
}
