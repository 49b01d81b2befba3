// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

// Gang is a job that runs as a whole or not at all: all allocations of all its
// task groups that ask for GPUs.
type Gang struct {
	ID     string
	Class  AppClass
	Shapes []Shape
	// MaxTier is the job's hard locality limit; 0: none.
	MaxTier Tier
}

// Shape is a set of identical members: the allocations of one task group.
type Shape struct {
	Name    string // task group
	Members int    // allocations
	GPUs    int    // per member, all on one node, from one device group
	Need    Resources
	// Eligible says for each device group of the cluster (see
	// [Cluster.Groups]) whether it may serve a member; nil: all may.
	Eligible []bool
	// Prefer are narrower forms of Eligible that are tried before it, in this
	// order: what the user would rather have.
	Prefer [][]bool
	// Spreads are how the members are to be spread, where that can be had.
	Spreads []SpreadOver
}

// GPUs is the number of GPUs that the gang needs.
func (g Gang) GPUs() int {
	n := 0
	for _, s := range g.Shapes {
		n += s.Members * s.GPUs
	}
	return n
}

// SingleGPUs is a gang of n one-GPU members: PAL's own notion of a job, whose
// GPUs may lie anywhere.
func SingleGPUs(id string, class AppClass, n int) Gang {
	return Gang{ID: id, Class: class, Shapes: []Shape{{Members: n, GPUs: 1}}}
}
