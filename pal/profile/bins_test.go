// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"fmt"
	"math"
	"math/bits"
	"sort"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

var approx = cmpopts.EquateApprox(0, 1e-9)

// bruteInertia tries every partition of at most 12 sorted values into k
// intervals.
func bruteInertia(values []float64, k int) float64 {
	asc := sorted(values)
	best := math.Inf(1)
	for cuts := 0; cuts < 1<<(len(asc)-1); cuts++ {
		if bits.OnesCount(uint(cuts)) > k-1 {
			continue
		}
		var total float64
		start := 0
		for i := 1; i <= len(asc); i++ {
			if i == len(asc) || cuts&(1<<(i-1)) != 0 {
				part := asc[start:i]
				m, _ := meanStd(part)
				for _, x := range part {
					total += (x - m) * (x - m)
				}
				start = i
			}
		}
		best = math.Min(best, total)
	}
	return best
}

func TestKMeans1DIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) float64 {
			return 1 + float64(rapid.IntRange(-40, 200).Draw(t, "v"))/100
		}), 1, 11).Draw(t, "values")
		k := rapid.IntRange(1, 6).Draw(t, "k")
		c := KMeans1D(values, k)
		if want := bruteInertia(values, k); math.Abs(c.Inertia-want) > 1e-9 {
			t.Fatalf("inertia %v, brute force finds %v", c.Inertia, want)
		}
		if !sort.Float64sAreSorted(c.Centroids) {
			t.Fatalf("centroids %v are not ascending", c.Centroids)
		}
		for i := range values {
			for j := range values {
				if values[i] <= values[j] && c.Rank[i] > c.Rank[j] {
					t.Fatalf("value %v has rank %d, value %v rank %d", values[i], c.Rank[i], values[j], c.Rank[j])
				}
			}
		}
	})
}

func TestKMeans1DEdges(t *testing.T) {
	for _, tc := range []struct {
		name   string
		values []float64
		k      int
		want   Clustering
	}{
		{"no values", nil, 2, Clustering{}},
		{"no clusters", []float64{1}, 0, Clustering{}},
		{"fewer values than clusters", []float64{2, 1, 2}, 5, Clustering{Rank: []int{1, 0, 1}, Centroids: []float64{1, 2}}},
		{"equal values", []float64{3, 3, 3}, 2, Clustering{Rank: []int{0, 0, 0}, Centroids: []float64{3}}},
	} {
		if diff := cmp.Diff(tc.want, KMeans1D(tc.values, tc.k), approx); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tc.name, diff)
		}
	}
}

// The worked example of the PAL artifact: 2 nodes × 4 GPUs, with scores per class, and the binned
// scores that its code computes.
func TestBinsWorkedExample(t *testing.T) {
	for _, tc := range []struct {
		class  string
		scores []float64
		rank   []int
		values []float64
	}{
		{"A", []float64{1.00, 1.02, 1.30, 0.98, 1.01, 1.28, 0.99, 1.03},
			[]int{0, 0, 1, 0, 0, 1, 0, 0}, []float64{0.8758169935, 1.1241830065}},
		{"B", []float64{1.00, 1.01, 1.00, 1.04, 1.04, 1.00, 1.05, 1.00},
			[]int{0, 0, 0, 1, 1, 0, 1, 0}, []float64{0.979791395, 1.020208605}},
		{"C", []float64{1.00, 1.00, 1.05, 1.00, 1.05, 1.04, 1.00, 1.00},
			[]int{0, 0, 1, 0, 1, 1, 0, 0}, []float64{0.9771986971, 1.0228013029}},
		{"D", []float64{1.000, 1.001, 1.000, 1.010, 1.000, 1.000, 1.012, 1.000},
			[]int{0, 0, 0, 1, 0, 0, 1, 0}, []float64{0.9946134085, 1.0053865915}},
	} {
		b := Bins(tc.scores, KMeans, nil)
		if diff := cmp.Diff(tc.rank, b.Rank); diff != "" {
			t.Errorf("class %s: rank (-want +got)\n%s", tc.class, diff)
		}
		if diff := cmp.Diff(tc.values, b.Values, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
			t.Errorf("class %s: values (-want +got)\n%s", tc.class, diff)
		}
	}
}

func TestBinsByEdges(t *testing.T) {
	edges := []float64{0.99, 1.01, 1.03, 1.06}
	b := Bins([]float64{0.99, 0.97, 1.0, 1.01, 1.2, 1.0101}, Edges, edges)
	want := Binning{Rank: []int{0, 0, 1, 1, 4, 2}, Values: []float64{0.98, 1.005, 1.0101, 1.045, 1.2}}
	if diff := cmp.Diff(want, b, approx); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := Bins(nil, Edges, edges); got.Rank != nil || got.Values != nil {
		t.Errorf("no scores: %+v", got)
	}
}

// An outlier adds a cluster. The silhouette finds three clear groups; the artifact's rule would
// make two.
func TestBinsMethods(t *testing.T) {
	var scores []float64
	for i := range 20 {
		scores = append(scores, 1+float64(i%3)*0.1+float64(i)*1e-5)
	}
	if got := len(Bins(scores, KMeans, nil).Values); got != 2 {
		t.Errorf("k-means without outlier: %d bins, want 2", got)
	}
	if got := len(Bins(scores, KMeansSilhouette, nil).Values); got != 3 {
		t.Errorf("silhouette on three groups: %d bins, want 3", got)
	}
	withOutlier := append(scores, 3)
	b := Bins(withOutlier, KMeans, nil)
	if got := len(b.Values); got != 3 {
		t.Errorf("k-means with an outlier: %d bins, want 3", got)
	}
	if b.Rank[20] != 2 {
		t.Errorf("the outlier has rank %d, want 2", b.Rank[20])
	}
}

// bruteSilhouette computes the silhouette by its definition, over all pairs.
func bruteSilhouette(values []float64, c Clustering) float64 {
	var total float64
	for i, v := range values {
		sum := make([]float64, len(c.Centroids))
		n := make([]float64, len(c.Centroids))
		for j, w := range values {
			if i != j {
				sum[c.Rank[j]] += math.Abs(v - w)
				n[c.Rank[j]]++
			}
		}
		if n[c.Rank[i]] == 0 {
			continue
		}
		a, b := sum[c.Rank[i]]/n[c.Rank[i]], math.Inf(1)
		for r := range sum {
			if r != c.Rank[i] {
				b = math.Min(b, sum[r]/n[r])
			}
		}
		if m := math.Max(a, b); m > 0 {
			total += (b - a) / m
		}
	}
	return total / float64(len(values))
}

func TestSilhouetteEqualsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0.9, 1.3), 3, 30).Draw(t, "values")
		c := KMeans1D(values, rapid.IntRange(2, 5).Draw(t, "k"))
		if len(c.Centroids) < 2 {
			t.Skip("one distinct value")
		}
		if got, want := Silhouette(values, c), bruteSilhouette(values, c); math.Abs(got-want) > 1e-6 {
			t.Fatalf("silhouette %v, want %v by definition", got, want)
		}
	})
}

func BenchmarkKMeans1D(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		values := make([]float64, n)
		for i := range values {
			values[i] = 1 + 0.05*math.Sin(float64(i)*1.7)*math.Cos(float64(i)*0.3)
		}
		b.Run(fmt.Sprintf("n=%d/k=5", n), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				KMeans1D(values, 5)
			}
		})
	}
}
