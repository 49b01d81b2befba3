// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"math"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/research/artifact"
	"github.com/nomad-pal/nomad-pal/research/pyrandom"
	"github.com/nomad-pal/nomad-pal/sim"
)

// gain has the gains of the artifact's policies over packing, under strict FIFO, on one population
// of GPUs. A gain is the average JCT divided by the average JCT of packed-sticky, as the geometric
// mean over the evaluation workloads.
type gain struct {
	Seed     uint32  `json:"seed"`
	Outliers bool    `json:"outliers"`
	Slowest  float64 `json:"slowest_class_a_score"`
	NoSticky float64 `json:"packed_nonsticky"` // packed, but jobs are placed again every round at no cost
	PMFirst  float64 `json:"pm_first"`         // in addition, the fastest GPUs, wherever they are
	PAL      float64 `json:"pal"`              // in addition, a trade-off between locality and speed
}

// gains splits PAL's gain into parts: for each seed, it measures the gain with outliers and with
// capped scores.
func (in *inputs) gains() ([]gain, error) {
	var gs []gain
	for _, seed := range []uint32{42, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9} {
		for _, limit := range []pal.PMScore{0, noOutliers} {
			g, err := in.gain(scenario{traces: in.eval, seed: seed, cap: limit, load: 1, across: pal.DefaultPenalty})
			if err != nil {
				return nil, fmt.Errorf("seed %d: %w", seed, err)
			}
			gs = append(gs, g)
		}
	}
	return gs, nil
}

func (in *inputs) gain(s scenario) (gain, error) {
	g := gain{Seed: s.seed, Outliers: s.cap == 0}
	for _, p := range []struct {
		name string
		to   *float64
	}{{"packed-nonsticky", &g.NoSticky}, {"pm-first", &g.PMFirst}, {"pal", &g.PAL}} {
		for w := range s.traces {
			base, _, err := in.faithful(s, w, "packed-sticky")
			if err != nil {
				return g, err
			}
			f, c, err := in.faithful(s, w, p.name)
			if err != nil {
				return g, err
			}
			*p.to += math.Log(f.AvgJCT/base.AvgJCT) / float64(len(s.traces))
			g.Slowest = slowest(c)
		}
		*p.to = round(math.Exp(*p.to))
	}
	return g, nil
}

func slowest(c *pal.Cluster) float64 {
	worst := pal.PMScore(0)
	for u := range c.NumGPUs() {
		worst = max(worst, c.GPU(u).Scores[0])
	}
	return round(float64(worst))
}

// faithful runs a policy of the artifact under strict FIFO in the artifact's simulator.
func (in *inputs) faithful(s scenario, workload int, policy string) (sim.Figures, *pal.Cluster, error) {
	c, r, err := in.cluster(s, workload)
	if err != nil {
		return sim.Figures{}, nil, err
	}
	res, err := artifact.Run{Jobs: s.jobs(workload), Cluster: c, Policy: policy, Order: "fifo", RoundS: 360, LoadPerH: 2,
		Fillers: true, Scores: r, Arrivals: pyrandom.New(1)}.Run()
	return sim.FiguresOf(res.Jobs), c, err
}
