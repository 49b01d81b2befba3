// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package artifact

import (
	"fmt"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/research/pyrandom"
	"github.com/nomad-pal/nomad-pal/sim"
)

// Rows has, per application class, the normalized measurements to draw from, in file order.
type Rows [pal.NumClasses][]float64

// DrawRows draws the artifact's cluster (cluster_state.py:64-107): a measurement for every GPU and
// class, with replacement. DrawRows also returns the generator, because the random policies
// continue to draw from it.
func DrawRows(nodes, gpusPerNode int, rows Rows, seed uint32) (sim.Population, *pyrandom.Rand, error) {
	p := sim.Population{Nodes: nodes, GPUsPerNode: gpusPerNode}
	for k, class := range pal.AppClasses() {
		if len(rows[k]) == 0 {
			return p, nil, fmt.Errorf("class %s has no measurements to draw from", class)
		}
	}
	r := pyrandom.New(seed)
	for range nodes * gpusPerNode {
		var s [pal.NumClasses]pal.PMScore
		for k := range s {
			s[k] = pal.PMScore(rows[k][r.Below(len(rows[k]))])
		}
		p.Scores = append(p.Scores, s)
	}
	return p, r, nil
}

// Capped returns the population with all scores above the limit reduced to the limit. The result is
// the same cluster without outliers.
func Capped(p sim.Population, limit pal.PMScore) sim.Population {
	capped := p
	capped.Scores = append([][pal.NumClasses]pal.PMScore(nil), p.Scores...)
	for i := range capped.Scores {
		for k, s := range capped.Scores[i] {
			capped.Scores[i][k] = min(s, limit)
		}
	}
	return capped
}

// Cluster builds a population's cluster, calibrated as the artifact effectively does ([Bins]).
func Cluster(p sim.Population, l pal.Locality) (*pal.Cluster, error) {
	nodes, err := p.PalNodes(Bins)
	if err != nil {
		return nil, err
	}
	return pal.NewCluster(nodes, l)
}
