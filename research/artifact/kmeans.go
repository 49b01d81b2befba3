// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package artifact

import (
	"math"
	"slices"
	"sort"

	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// Bins puts the scores of one application class into bins as the artifact effectively does: K = 2 +
// number of outliers, fitted to all GPUs. The value of a bin is its centroid divided by the median
// centroid, so possibly no bin has the value 1.0. The result has the value of each score's bin.
func Bins(scores []float64) []float64 {
	c := kmeans(scores, 2+outliers(scores))
	m := profile.Median(c.centroids)
	values := make([]float64, len(scores))
	for i, r := range c.rank {
		values[i] = c.centroids[r] / m
	}
	return values
}

// outliers counts the scores above mean + 3 standard deviations. PAL's rule is one-sided, and uses
// the standard deviation of a sample (n−1).
func outliers(scores []float64) (n int) {
	mean, std := meanStd(scores)
	for _, x := range scores {
		if x > mean+3*std {
			n++
		}
	}
	return n
}

// clustering is a partition of values into intervals.
type clustering struct {
	rank      []int     // cluster of each value, in input order; 0 has the smallest values
	centroids []float64 // mean of each cluster, ascending
	inertia   float64   // sum of squared distances to the centroids
}

// kmeans partitions the values into k clusters with the least inertia. In one dimension, dynamic
// programming finds the exact optimum. With fewer than k distinct values, each distinct value is a
// cluster. On ties, the partition with the smaller first clusters wins.
//
// The best partition of the first i values into c clusters consists of two parts: the best
// partition of the first s values into c−1 clusters, and one cluster with all other values. Divide
// and conquer finds the best s for every i, in O(k·n·log n) in total. See Grønlund et al., arXiv
// 1701.07204.
func kmeans(values []float64, k int) clustering {
	if len(values) == 0 || k < 1 {
		return clustering{}
	}
	d := newDistinct(values)
	k = min(k, len(d.value))
	starts := d.bestStarts(k)
	rankOf := make([]int, len(d.value))
	c := clustering{rank: make([]int, len(values)), centroids: make([]float64, k)}
	for r, lo := range starts {
		hi := len(d.value)
		if r+1 < k {
			hi = starts[r+1]
		}
		c.centroids[r] = d.mean(lo, hi)
		c.inertia += d.cost(lo, hi)
		for i := lo; i < hi; i++ {
			rankOf[i] = r
		}
	}
	for i, v := range values {
		c.rank[i] = rankOf[sort.SearchFloat64s(d.value, v)]
	}
	return c
}

// distinct holds the distinct values, ascending, and prefix sums of their counts, values and
// squares. Values are shifted by their mean, so that differences of sums stay precise.
type distinct struct {
	value         []float64
	shift         float64
	count, s1, s2 []float64
}

func newDistinct(values []float64) distinct {
	asc := slices.Sorted(slices.Values(values))
	d := distinct{count: []float64{0}, s1: []float64{0}, s2: []float64{0}}
	d.shift, _ = meanStd(asc)
	for i, v := range asc {
		x := v - d.shift
		if i == 0 || v != asc[i-1] {
			d.value = append(d.value, v)
			n := len(d.count) - 1
			d.count = append(d.count, d.count[n])
			d.s1 = append(d.s1, d.s1[n])
			d.s2 = append(d.s2, d.s2[n])
		}
		n := len(d.count) - 1
		d.count[n]++
		d.s1[n] += x
		d.s2[n] += x * x
	}
	return d
}

// mean returns the mean of the distinct values lo…hi-1, weighted by their counts.
func (d *distinct) mean(lo, hi int) float64 {
	return d.shift + (d.s1[hi]-d.s1[lo])/(d.count[hi]-d.count[lo])
}

// cost returns the inertia of one cluster of the distinct values lo…hi-1: Σx² − (Σx)²/n. The cost
// is computed from prefix sums, in constant time. The result is at least 0, even if rounding makes
// the difference negative.
func (d *distinct) cost(lo, hi int) float64 {
	if hi-lo < 2 {
		return 0
	}
	s := d.s1[hi] - d.s1[lo]
	return math.Max(0, d.s2[hi]-d.s2[lo]-s*s/(d.count[hi]-d.count[lo]))
}

// bestStarts returns the index of the first distinct value of each of k clusters.
func (d *distinct) bestStarts(k int) []int {
	n := len(d.value)
	best := make([]float64, n+1) // best[i]: least cost of the first i values
	for i := range best {
		best[i] = d.cost(0, i)
	}
	splits := make([][]int32, k)
	for c := 1; c < k; c++ {
		next := make([]float64, n+1)
		splits[c] = make([]int32, n+1)
		d.fill(layer{best, next, splits[c]}, c+1, n, c, n-1)
		best = next
	}
	starts := make([]int, k)
	end := n
	for c := k - 1; c > 0; c-- {
		end = int(splits[c][end])
		starts[c] = end
	}
	return starts
}

// layer is one step of the dynamic program. The slices prev and next have the costs without and
// with the last cluster; split has the start of this cluster.
type layer struct {
	prev, next []float64
	split      []int32
}

// fill computes next[lo…hi]. The best split lies between `from` and `to`, and never falls as the
// number of values grows.
func (d *distinct) fill(l layer, lo, hi, from, to int) {
	if lo > hi {
		return
	}
	mid := (lo + hi) / 2
	at, least := from, math.Inf(1)
	for s := from; s <= min(to, mid-1); s++ {
		c := l.prev[s] + d.cost(s, mid)
		if c < least {
			at, least = s, c
		}
	}
	l.next[mid], l.split[mid] = least, int32(at)
	d.fill(l, lo, mid-1, from, at)
	d.fill(l, mid+1, hi, at, to)
}

// meanStd returns the mean and the standard deviation of a sample (n−1), as in pandas. For fewer
// than two values, std is 0.
func meanStd(xs []float64) (mean, std float64) {
	for _, x := range xs {
		mean += x
	}
	mean /= float64(len(xs))
	if len(xs) < 2 {
		return mean, 0
	}
	var ss float64
	for _, x := range xs {
		ss += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(ss / float64(len(xs)-1))
}
