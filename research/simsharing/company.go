// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// share returns nodes in which several jobs can share each GPU. As in the placer, each shared GPU is
// a device group of its own, with an entry for each part.
func share(nodes []pal.Node, parts int) []pal.Node {
	nodes = slices.Clone(nodes)
	for n := range nodes {
		whole := nodes[n].Groups
		nodes[n].Groups = nil
		for _, g := range whole {
			for _, gpu := range g.GPUs {
				of := pal.DeviceGroup{Name: g.Name, Shared: true, GPUs: slices.Repeat([]pal.GPU{gpu}, parts)}
				for i := range of.GPUs {
					of.GPUs[i].ID = fmt.Sprintf("%s::%d", gpu.ID, i)
				}
				nodes[n].Groups = append(nodes[n].Groups, of)
			}
		}
	}
	return nodes
}

// sharedGang is a job's gang on shared GPUs: each member has the given number of parts of one GPU,
// and no two members share a GPU.
func sharedGang(j trace.Job, parts int) pal.Gang {
	return pal.Gang{ID: j.ID, Class: j.Class, Speeds: j.Speeds, Sharing: &pal.Sharing{Beside: pal.AnyClass},
		MemberSets: []pal.MemberSet{{Members: j.GPUs, GPUs: parts}}}
}

// randomNeighbours returns a function for [pal.Cluster.SetInterference] that makes jobs prefer an
// idle GPU, and otherwise gives them random neighbours.
func randomNeighbours(seed uint64) func(of, by pal.Occupant) float64 {
	return func(of, by pal.Occupant) float64 {
		h := fnv.New64a()
		fmt.Fprintf(h, "%d\x00%s\x00%s", seed, of.Gang, by.Gang)
		return 1e-6 * (1 + rand.New(rand.NewPCG(h.Sum64(), seed)).Float64())
	}
}

// company knows which jobs are on which GPU. A gang is as fast as its slowest member.
type company struct {
	on [][]int         // by device group: the jobs on a shared GPU, one entry for each member
	at []pal.Placement // by job
	// beside returns the speed of job i beside others on the GPU of a device group, relative to its
	// speed alone.
	beside func(i int, others []int, group int) float64
}

func newCompany(c *pal.Cluster, jobs int, beside func(i int, others []int, group int) float64) *company {
	return &company{make([][]int, c.Groups()), make([]pal.Placement, jobs), beside}
}

// repace is for [sim.Config.Repace].
func (c *company) repace(i int, p pal.Placement, starts bool) (changed []sim.Pace) {
	c.at[i] = p
	for _, m := range p.Members {
		if starts {
			c.on[m.Group] = append(c.on[m.Group], i)
			continue
		}
		at := slices.Index(c.on[m.Group], i)
		c.on[m.Group] = slices.Delete(c.on[m.Group], at, at+1)
	}
	for _, m := range p.Members {
		for _, other := range c.on[m.Group] {
			if other != i {
				changed = append(changed, sim.Pace{Job: other, Rate: c.rate(other)})
			}
		}
	}
	if starts {
		changed = append(changed, sim.Pace{Job: i, Rate: c.rate(i)})
	}
	return changed
}

func (c *company) rate(i int) float64 {
	rate := 1.0
	for _, m := range c.at[i].Members {
		others := slices.DeleteFunc(slices.Clone(c.on[m.Group]), func(o int) bool { return o == i })
		if len(others) > 0 {
			rate = min(rate, c.beside(i, others, m.Group))
		}
	}
	return rate
}
