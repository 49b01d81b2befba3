// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import "sort"

// Bin puts the scores of one application class into bins, by the edges without hysteresis. The value
// of a bin is the median of its members. Bin returns the value of each score's bin.
func (o Options) Bin(scores []float64) []float64 {
	rank := make([]int, len(scores))
	for i, s := range scores {
		rank[i] = edgeRank(s, o.Edges)
	}
	of := binMedians(scores, rank, o.Edges)
	values := make([]float64, len(scores))
	for i, r := range rank {
		values[i] = of[r]
	}
	return values
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
