// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package paldata

import (
	"fmt"
	"math"
	"sort"

	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/sim/population"
)

// run is one measured run of an application on one GPU.
type run struct {
	gpu  string
	time float64 // any unit
}

// newTable computes the full table of measured runs, with a quantile for every GPU.
func newTable(cluster, app string, runs []run) (population.Table, error) {
	byGPU := map[string][]float64{}
	for i, r := range runs {
		if r.gpu == "" || !(r.time > 0) || math.IsInf(r.time, 0) {
			return population.Table{}, fmt.Errorf("run %d of %s on %s has GPU %q and time %v: a run needs a GPU and a positive, finite time", i+1, app, cluster, r.gpu, r.time)
		}
		byGPU[r.gpu] = append(byGPU[r.gpu], r.time)
	}
	if len(byGPU) == 0 {
		return population.Table{}, fmt.Errorf("%s on %s: no runs", app, cluster)
	}
	var medians, noise []float64
	for _, times := range byGPU {
		sort.Float64s(times)
		m := profile.Quantile(times, 0.5)
		medians = append(medians, m)
		if len(times) >= 3 {
			noise = append(noise, profile.RobustSigma(times, m)/m)
		}
	}
	sort.Float64s(medians)
	t := population.Table{Cluster: cluster, App: app, GPUs: len(byGPU), Runs: len(runs), MedianTime: profile.Quantile(medians, 0.5)}
	for _, m := range medians {
		if s := m / t.MedianTime; s < population.OutlierFrom {
			t.Quantiles = append(t.Quantiles, s)
		}
	}
	for _, r := range runs {
		if s := r.time / t.MedianTime; s >= population.OutlierFrom {
			t.OutlierQuantiles = append(t.OutlierQuantiles, s)
		}
	}
	sort.Float64s(t.OutlierQuantiles)
	t.OutlierShare = float64(len(t.OutlierQuantiles)) / float64(len(runs))
	if len(noise) > 0 {
		sort.Float64s(noise)
		t.Noise = profile.Quantile(noise, 0.5)
	}
	return t, nil
}
