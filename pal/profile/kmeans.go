// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"math"
	"sort"
)

// Clustering is a partition of values into intervals.
type Clustering struct {
	Rank      []int     // cluster of each value, in input order; 0 has the smallest values
	Centroids []float64 // mean of each cluster, ascending
	Inertia   float64   // sum of squared distances to the centroids
}

// KMeans1D partitions the values into k clusters with the least inertia. In one dimension, dynamic
// programming finds the exact optimum. With fewer than k distinct values, each distinct value is a
// cluster. On ties, the partition with the smaller first clusters wins.
//
// The best partition of the first i values into c clusters consists of two parts: the best
// partition of the first s values into c−1 clusters, and one cluster with all other values. Divide
// and conquer finds the best s for every i, in O(k·n·log n) in total. See Grønlund et al., arXiv
// 1701.07204.
func KMeans1D(values []float64, k int) Clustering {
	if len(values) == 0 || k < 1 {
		return Clustering{}
	}
	d := newDistinct(values)
	k = min(k, len(d.value))
	starts := d.bestStarts(k)
	rankOf := make([]int, len(d.value))
	c := Clustering{Rank: make([]int, len(values)), Centroids: make([]float64, k)}
	for r, lo := range starts {
		hi := len(d.value)
		if r+1 < k {
			hi = starts[r+1]
		}
		c.Centroids[r] = d.mean(lo, hi)
		c.Inertia += d.cost(lo, hi)
		for i := lo; i < hi; i++ {
			rankOf[i] = r
		}
	}
	for i, v := range values {
		c.Rank[i] = rankOf[sort.SearchFloat64s(d.value, v)]
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
	asc := sorted(values)
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

// Silhouette returns the mean silhouette of a clustering, from −1 to 1. The silhouette says how
// much nearer the values are to their own cluster than to the next nearest cluster. The silhouette
// of a value that is alone in its cluster is 0. With fewer than two clusters, Silhouette returns 0.
func Silhouette(values []float64, c Clustering) float64 {
	k := len(c.Centroids)
	if k < 2 {
		return 0
	}
	members := make([][]float64, k)
	for i, v := range values {
		members[c.Rank[i]] = append(members[c.Rank[i]], v)
	}
	sums := make([][]float64, k) // prefix sums of each ascending cluster
	for r := range members {
		sort.Float64s(members[r])
		sums[r] = make([]float64, len(members[r])+1)
		for i, v := range members[r] {
			sums[r][i+1] = sums[r][i] + v
		}
	}
	var total float64
	for i, v := range values {
		own := c.Rank[i]
		if len(members[own]) == 1 {
			continue
		}
		a := distanceSum(members[own], sums[own], v) / float64(len(members[own])-1)
		b := math.Inf(1)
		// Clusters are intervals, so the nearest cluster by mean distance is adjacent.
		for _, r := range [2]int{own - 1, own + 1} {
			if r >= 0 && r < k {
				b = math.Min(b, distanceSum(members[r], sums[r], v)/float64(len(members[r])))
			}
		}
		m := math.Max(a, b)
		if m > 0 {
			total += (b - a) / m
		}
	}
	return total / float64(len(values))
}

// distanceSum returns the sum of |v−x| over the values x in asc. The slice `prefix` has the prefix
// sums of asc.
func distanceSum(asc, prefix []float64, v float64) float64 {
	n := len(asc)
	i := sort.SearchFloat64s(asc, v)
	return v*float64(i) - prefix[i] + (prefix[n] - prefix[i]) - v*float64(n-i)
}
