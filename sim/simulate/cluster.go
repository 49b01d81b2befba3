// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer/measured"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/population"
)

// population draws nodes of one GPU model, from the measurements of -profile or from the published
// quantiles. With -profile, each GPU has the scores of a measured GPU.
func (o *options) population(nodes int, seed uint64) (sim.Population, error) {
	if o.profile != "" {
		p := sim.Population{Nodes: nodes, GPUsPerNode: o.gpusPerNode,
			Scores: make([][pal.NumClasses]pal.PMScore, nodes*o.gpusPerNode)}
		return p, o.drawMeasured(p, sim.Stream(seed))
	}
	out := population.AsMeasured()
	if o.outliers >= 0 {
		out = population.Exactly(o.outliers)
	}
	p, err := sim.DrawGPUs(population.Spec{Cluster: "longhorn", Nodes: nodes, GPUsPerNode: o.gpusPerNode, Outliers: out}, seed)
	return p, err
}

// drawMeasured gives every GPU of the cluster the scores of a measured GPU, and uses each measured
// GPU once before it uses one again.
func (o *options) drawMeasured(p sim.Population, rng *rand.Rand) error {
	scores, err := o.measuredScores()
	if err != nil {
		return err
	}
	for i := range p.Scores {
		if i%len(scores) == 0 {
			rng.Shuffle(len(scores), func(a, b int) { scores[a], scores[b] = scores[b], scores[a] })
		}
		p.Scores[i] = scores[i%len(scores)]
	}
	return nil
}

// measuredScores returns the scores of the GPUs in the file of -profile, calibrated as the agent
// does, without GPUs that lack a time for one of the application classes.
func (o *options) measuredScores() (scores [][pal.NumClasses]pal.PMScore, err error) {
	data, err := os.ReadFile(o.profile)
	if err != nil {
		return nil, fmt.Errorf("reading -profile: %w", err)
	}
	rows, err := measured.Read(o.profile, data, "of one model")
	if err != nil {
		return nil, fmt.Errorf("reading -profile: %w", err)
	}
	samples := make([]profile.Sample, len(rows))
	for i, r := range rows {
		samples[i] = r.Sample
	}
	built, err := profile.Build(samples, o.rules.Calibration, nil)
	if err != nil {
		return nil, fmt.Errorf("calibrating the measurements in %s: %w", o.profile, err)
	}
	missing := ""
	for _, g := range built.GPUs {
		var of [pal.NumClasses]pal.PMScore
		complete := true
		for k, class := range pal.AppClasses() {
			e, ok := built.Lookup(g.ID, class)
			of[k] = e.Score
			if !ok {
				complete, missing = false, fmt.Sprintf("GPU %q has no time for class %s", g.ID, class)
			}
		}
		if complete {
			scores = append(scores, of)
		}
	}
	if len(scores) == 0 {
		return nil, fmt.Errorf("-profile %s: no GPU has times for all application classes; %s", o.profile, cmp.Or(missing, "the file has no times"))
	}
	return scores, nil
}
