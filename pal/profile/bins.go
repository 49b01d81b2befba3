// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"sort"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Method is a way to put scores into bins.
type Method string

// The methods of binning.
const (
	// Edges bins scores by fixed edges. A GPU keeps its class until its score is beyond an edge by
	// more than the hysteresis in two sessions.
	Edges Method = "edges"
	// KMeans is what the PAL artifact effectively does: K = 2 + number of outliers, fitted to all
	// GPUs.
	KMeans Method = "kmeans"
	// KMeansSilhouette is the method of the PAL paper. K is the number of outliers plus the number
	// of clusters, from 2 to 10, that gives the other GPUs the best mean silhouette.
	KMeansSilhouette Method = "kmeans-silhouette"
)

// ParseMethod reads a method's name.
func ParseMethod(s string) (Method, error) {
	return pal.ParseName("method", s, Edges, KMeans, KMeansSilhouette)
}

// maxSilhouetteK is the largest number of clusters that KMeansSilhouette tries.
const maxSilhouetteK = 10

// Binning is a set of scores put into bins.
type Binning struct {
	Rank   []int     // bin of each score, in input order; 0 is the fastest
	Values []float64 // PM score of each bin, ascending
	// Centers are the k-means centroids in the unit of the scores, ascending. With fixed edges,
	// Centers is nil.
	Centers []float64
}

// Bins puts the scores of one application class into bins. With [Edges], there is a bin for every
// range between edges, even if no score is in this range. A bin's value is the median of its
// members. An empty bin has a nominal value in its range. With k-means, the value of a bin is its
// centroid divided by the median centroid, as in PAL. So possibly no bin has the value 1.0.
//
// Without scores there are no bins.
func Bins(scores []float64, method Method, edges []float64) Binning {
	if len(scores) == 0 {
		return Binning{}
	}
	switch method {
	case KMeans:
		return kmeansBins(scores, 2+len(outliers(scores)))
	case KMeansSilhouette:
		return kmeansBins(scores, silhouetteK(scores))
	default:
		return edgeBins(scores, edges)
	}
}

func kmeansBins(scores []float64, k int) Binning {
	c := KMeans1D(scores, k)
	b := Binning{Rank: c.Rank, Centers: c.Centroids, Values: make([]float64, len(c.Centroids))}
	m := Median(c.Centroids)
	for i, v := range c.Centroids {
		b.Values[i] = v / m
	}
	return b
}

// outliers lists the indices of scores above mean + 3 standard deviations. PAL's rule is one-sided,
// and uses the standard deviation of a sample (n−1).
func outliers(scores []float64) []int {
	mean, std := meanStd(scores)
	var out []int
	for i, x := range scores {
		if x > mean+3*std {
			out = append(out, i)
		}
	}
	return out
}

// silhouetteK returns the number of clusters with the best silhouette, plus the number of outliers.
// On ties, the smaller number of clusters wins. The artifact already returns after the first try,
// with 2 clusters, so [KMeans] uses 2 clusters.
func silhouetteK(scores []float64) int {
	out := outliers(scores)
	rest := without(scores, out)
	bestK, best := 2, -2.0
	for k := 2; k <= min(maxSilhouetteK, len(rest)-1); k++ {
		s := Silhouette(rest, KMeans1D(rest, k))
		if s > best {
			bestK, best = k, s
		}
	}
	return bestK + len(out)
}

func without(xs []float64, drop []int) []float64 {
	var kept []float64
	for i, x := range xs {
		if len(drop) > 0 && drop[0] == i {
			drop = drop[1:]
			continue
		}
		kept = append(kept, x)
	}
	return kept
}

func edgeBins(scores, edges []float64) Binning {
	rank := make([]int, len(scores))
	for i, s := range scores {
		rank[i] = edgeRank(s, edges)
	}
	return Binning{Rank: rank, Values: binMedians(scores, rank, edges)}
}

// edgeRank returns the index of the range that contains the score. A score on an edge is in the
// faster range.
func edgeRank(score float64, edges []float64) int {
	return sort.SearchFloat64s(edges, score)
}

// binMedians returns a value for every range: the median of its members or, if the range is empty,
// its nominal value. The values ascend even if hysteresis has left a score in a range that does not
// contain the score.
func binMedians(scores []float64, rank []int, edges []float64) []float64 {
	members := make([][]float64, len(edges)+1)
	for i, r := range rank {
		members[r] = append(members[r], scores[i])
	}
	values := make([]float64, len(members))
	for r := range values {
		values[r] = nominalValue(r, edges)
		if len(members[r]) > 0 {
			values[r] = Median(members[r])
		}
		if r > 0 && values[r] < values[r-1] {
			values[r] = values[r-1]
		}
	}
	return values
}

// nominalValue returns the value of an empty range: the middle of the range. The first and the last
// range are open, so their value lies beyond their edge, by half the width of the neighbouring
// range. If there is only one edge, the value lies 0.01 beyond this edge.
func nominalValue(r int, edges []float64) float64 {
	n := len(edges)
	switch {
	case n == 0:
		return 1
	case n == 1:
		return edges[0] + float64(2*r-1)*0.01
	case r == 0:
		return edges[0] - (edges[1]-edges[0])/2
	case r == n:
		return edges[n-1] + (edges[n-1]-edges[n-2])/2
	default:
		return (edges[r-1] + edges[r]) / 2
	}
}
