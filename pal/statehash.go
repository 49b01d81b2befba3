// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import "math"

// The state hash of a cluster covers everything that affects a search. The hash is
// the exclusive or of one number for what never changes, for every available GPU, every taken part of
// a shared GPU, and the free resources of every node. A cluster that returns to an earlier state has
// the same hash as before.

// State returns the state hash of a cluster.
func (c *Cluster) State() uint64 { return c.stateHash }

// hashOfTopology returns the hash of what never changes, and of the nodes' resources.
func hashOfTopology(c *Cluster) uint64 {
	h := uint64(0)
	add := func(numbers ...uint64) {
		for _, n := range numbers {
			h = mix(h ^ n)
		}
	}
	for _, penalties := range c.locality {
		for _, l := range penalties {
			add(math.Float64bits(l))
		}
	}
	for _, m := range c.models {
		for _, b := range []byte(m.name) {
			add(uint64(b))
		}
	}
	for _, u := range c.gpus {
		g := c.groups[u.group]
		n := c.nodes[g.node]
		add(uint64(u.group), uint64(g.node), uint64(g.model), uint64(n.at[TierRack]), uint64(n.at[TierDatacenter]), uint64(u.NUMA), uint64(u.Island))
		for k := range NumClasses {
			add(math.Float64bits(float64(u.Scores[k])), math.Float64bits(float64(binValue(u.GPU, k))))
		}
	}
	for i, r := range c.resources {
		h ^= hashOfResources(i, r)
	}
	return h
}

// hashOfOccupant returns the hash of an occupied part of a GPU.
func hashOfOccupant(i int, o Occupant) uint64 {
	h := mix(uint64(i)<<16 ^ uint64(o.Class)<<8 ^ uint64(o.Parts))
	for _, b := range append(o.Sharing.Beside[:], o.Sharing.Self, o.Sharing.Stays) {
		h = mix(h)
		if b {
			h++
		}
	}
	for _, slower := range o.Sharing.Slower {
		h = mix(h ^ math.Float64bits(slower))
	}
	for _, b := range []byte(o.Gang) {
		h = mix(h ^ uint64(b))
	}
	return h
}

func hashOfResources(node int, r Resources) uint64 {
	h := mix(^uint64(node))
	for _, d := range [...]int{r.CPU, r.MemoryMB, r.DiskMB} {
		h = mix(h ^ uint64(d))
	}
	return h
}

// mix is the finalizer of SplitMix64: every bit of x changes half the bits.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
