// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/sim/population"
)

// Population has the GPUs of a simulated cluster, node by node. Each GPU has a raw PM score for
// each application class.
type Population struct {
	Nodes, GPUsPerNode int
	Scores             [][pal.NumClasses]pal.PMScore
}

// DrawGPUs draws a cluster of whole GPUs from the published quantiles; the same seed gives the
// same scores.
func DrawGPUs(s population.Spec, seed uint64) (Population, error) {
	p := Population{Nodes: s.Nodes, GPUsPerNode: s.GPUsPerNode}
	gpus, err := population.Draw(s, Stream(seed))
	if err != nil {
		return p, err
	}
	for _, g := range gpus {
		var scores [pal.NumClasses]pal.PMScore
		for k, v := range g.Scores {
			scores[k] = pal.PMScore(v)
		}
		p.Scores = append(p.Scores, scores)
	}
	return p, nil
}

// Stream is the source of random numbers from which a cluster's GPUs are drawn.
func Stream(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x6b5)) }

// PalNodes returns the population as nodes of package pal. The function bin returns the
// value of each score's bin. Each node is one device group.
func (p Population) PalNodes(bin func(scores []float64) []float64) ([]pal.Node, error) {
	if len(p.Scores) != p.Nodes*p.GPUsPerNode || len(p.Scores) == 0 {
		return nil, fmt.Errorf("building cluster: %d scores for %d nodes of %d GPUs", len(p.Scores), p.Nodes, p.GPUsPerNode)
	}
	gpus := make([]pal.GPU, len(p.Scores))
	raw := make([]float64, len(gpus))
	for k := range pal.NumClasses {
		for i, s := range p.Scores {
			raw[i] = float64(s[k])
		}
		for i, value := range bin(raw) {
			gpus[i].Scores[k] = p.Scores[i][k]
			gpus[i].Binned[k] = pal.PMScore(value)
		}
	}
	nodes := make([]pal.Node, p.Nodes)
	for n := range nodes {
		first := n * p.GPUsPerNode
		group := gpus[first : first+p.GPUsPerNode]
		for i := range group {
			group[i].ID = fmt.Sprintf("gpu-%d", first+i)
		}
		nodes[n] = pal.Node{ID: fmt.Sprintf("node-%d", n), Name: fmt.Sprintf("node-%d", n), Datacenter: "dc1",
			Groups: []pal.DeviceGroup{{Name: "nvidia/gpu/sim", GPUs: group}}}
	}
	return nodes, nil
}
