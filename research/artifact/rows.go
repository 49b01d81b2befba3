// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package artifact

import (
	"fmt"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/research/pyrandom"
	"github.com/nomad-pal/nomad-pal/sim"
)

// Rows are the normalised measurements that one application class is drawn
// from, in file order.
type Rows [pal.NumClasses][]float64

// DrawRows is the artifact's cluster (cluster_state.py:64-107): for every GPU
// and class a measurement is drawn with replacement. It returns the generator
// too, since the random policies go on drawing from it.
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

// Capped is the population with scores above the limit cut to it: the same
// cluster without its outliers.
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
