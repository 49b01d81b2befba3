// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"fmt"
	"math/rand/v2"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/paldata"
	"github.com/nomad-pal/nomad-pal/sim/population"
)

// overMedian returns the times divided by their median.
func overMedian(xs []float64) []float64 {
	m := profile.Median(xs)
	out := make([]float64, len(xs))
	for i, x := range xs {
		out[i] = x / m
	}
	return out
}

// population draws nodes of one GPU model, from the measurements of -profile or from the published
// quantiles. With -profile, each GPU has the median of a measured GPU's runs.
func (o *options) population(nodes int, seed uint64) (sim.Population, error) {
	if len(o.profile) > 0 {
		p := sim.Population{Nodes: nodes, GPUsPerNode: o.gpusPerNode, RackNodes: o.rackNodes,
			Scores: make([][pal.NumClasses]pal.PMScore, nodes*o.gpusPerNode)}
		return p, o.drawMeasured(p, sim.Stream(seed))
	}
	out := population.AsMeasured()
	if o.outliers >= 0 {
		out = population.Exactly(o.outliers)
	}
	p, err := sim.DrawGPUs(population.Spec{Cluster: o.cluster, Nodes: nodes, GPUsPerNode: o.gpusPerNode, Outliers: out}, seed)
	p.RackNodes = o.rackNodes
	return p, err
}

// drawMeasured gives every GPU of the cluster the score of a measured GPU. drawMeasured uses each
// measured GPU once before it uses a GPU again.
func (o *options) drawMeasured(p sim.Population, rng *rand.Rand) error {
	for k, class := range pal.AppClasses() {
		if o.profile[class] == "" {
			return fmt.Errorf("-profile names no file for class %s", class)
		}
		rows, err := paldata.ReadVariability(o.profile[class])
		if err != nil {
			return err
		}
		scores := overMedian(gpuMedians(rows))
		for i := range p.Scores {
			if i%len(scores) == 0 {
				rng.Shuffle(len(scores), func(a, b int) { scores[a], scores[b] = scores[b], scores[a] })
			}
			p.Scores[i][k] = pal.PMScore(scores[i%len(scores)])
		}
	}
	return nil
}

// gpuMedians returns the median times of the GPUs, in order of first appearance.
func gpuMedians(rows []paldata.Row) []float64 {
	runs, order := map[string][]float64{}, []string{}
	for _, r := range rows {
		if runs[r.GPU] == nil {
			order = append(order, r.GPU)
		}
		runs[r.GPU] = append(runs[r.GPU], r.Time)
	}
	medians := make([]float64, len(order))
	for i, id := range order {
		medians[i] = profile.Median(runs[id])
	}
	return medians
}
