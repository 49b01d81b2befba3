// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package population

import (
	"math"
	"sort"

	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// OutlierFrom is the time, relative to the median GPU, from which a run is an outlier and not part
// of the spread.
const OutlierFrom = 1.5

// Table describes how the GPUs of one cluster differ in one application.
type Table struct {
	Cluster string // "longhorn", "frontera" or "lonestar6"
	App     string // "resnet50", "bert" or "pagerank"
	GPUs    int    // number of measured GPUs
	Runs    int    // number of runs on all measured GPUs
	// MedianTime is the median GPU's time in the unit of the source. The source does not state this
	// unit; judging by the values, it is milliseconds.
	MedianTime float64
	// Quantiles are quantiles of the GPUs' median times, divided by MedianTime, without outliers.
	// If there are as many quantiles as [Probabilities], the quantiles are at these probabilities,
	// otherwise at even steps.
	Quantiles []float64
	// Noise is the median of the GPUs' relative run-to-run standard deviations, estimated from the
	// median absolute deviation. Only GPUs with at least 3 runs count; 0 if there are no such GPUs.
	Noise float64
	// OutlierShare is the share of runs that take at least OutlierFrom times the median.
	// OutlierQuantiles are the quantiles of the times of these runs, divided by MedianTime, at even
	// steps.
	OutlierShare     float64
	OutlierQuantiles []float64
}

// Probabilities are the probabilities of the quantiles in the product's tables.
func Probabilities() []float64 {
	return []float64{0, .01, .025, .05, .1, .15, .2, .3, .4, .5, .6, .7, .8, .85, .9, .95, .975, .99, 1}
}

// Quantile returns the score at probability u, 0…1, by linear interpolation.
func (t Table) Quantile(u float64) float64 {
	probs := Probabilities()
	if len(t.Quantiles) != len(probs) {
		return profile.Quantile(t.Quantiles, u)
	}
	u = math.Max(0, math.Min(1, u))
	i := sort.SearchFloat64s(probs, u)
	if i == 0 {
		return t.Quantiles[0]
	}
	f := (u - probs[i-1]) / (probs[i] - probs[i-1])
	return t.Quantiles[i-1] + f*(t.Quantiles[i]-t.Quantiles[i-1])
}
