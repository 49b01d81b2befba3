// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package classify

import (
	"fmt"
	"math"
	"sort"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Groups are three groups of jobs learned from a cluster's history: compute, mixed and memory
// (K-means with K = 3, as PAL and its successors do). No group has class D, because the memory
// group contains both jobs that stream memory and jobs that access memory at random.
type Groups struct {
	// Counters is set if the jobs were grouped by compute and memory activity. If Counters is not
	// set, the jobs were grouped by the power drawn and the negated share of time at the power cap.
	Counters bool
	Centers  [3][2]float64 // by class: A, B, C
}

// MinJobs is the minimum number of jobs for [Learn].
const MinJobs = 20

// Learn groups the jobs that have enough readings. If all of these jobs have compute and memory
// counters, Learn uses the counters. Otherwise, Learn uses the power drawn. Learn returns an error
// if fewer than [MinJobs] jobs have enough readings, or if the jobs do not form three groups.
//
// The order of the jobs does not change the groups: K-means starts from the least compute-bound
// job, from the job farthest from that job, and from the job farthest from these two.
func Learn(jobs []Features) (Groups, error) {
	var fs []Features
	counters := true
	for _, f := range jobs {
		if f.Readings < enough || math.IsNaN(f.Power) && (math.IsNaN(f.Compute) || math.IsNaN(f.Memory)) {
			continue
		}
		fs = append(fs, f)
		counters = counters && !math.IsNaN(f.Compute) && !math.IsNaN(f.Memory)
	}
	if len(fs) < MinJobs {
		return Groups{}, fmt.Errorf("only %d jobs have enough readings, but at least %d are needed", len(fs), MinJobs)
	}
	g := Groups{Counters: counters}
	var points [][2]float64
	for _, f := range fs {
		p, ok := g.point(f)
		if ok {
			points = append(points, p)
		}
	}
	if len(points) < MinJobs {
		return Groups{}, fmt.Errorf("only %d jobs have comparable readings, but at least %d are needed", len(points), MinJobs)
	}
	sort.Slice(points, func(i, j int) bool { return less(points[i], points[j]) })
	centers := kmeans(points, farthest(points))
	if d := closest(centers); d < leastDistance {
		return Groups{}, fmt.Errorf("the %d jobs do not form three groups: two groups have a distance of %.2f, but must have at least %.2f", len(points), d, leastDistance)
	}
	sort.Slice(centers[:], func(i, j int) bool { return bound(centers[i]) > bound(centers[j]) })
	g.Centers = centers
	return g, nil
}

// leastDistance is the minimum distance between groups, as a share of the GPU's capability. Closer
// groups could be similar jobs that were split by chance.
const leastDistance = 0.15

// closest returns the smallest distance between two centers.
func closest(centers [3][2]float64) float64 {
	least := math.Inf(1)
	for i := range centers {
		_, d := nearest(centers[:i], centers[i])
		least = math.Min(least, d)
	}
	return math.Sqrt(least)
}

// point returns the job's coordinates; ok is false if a coordinate is unknown.
func (g Groups) point(f Features) (p [2]float64, ok bool) {
	if g.Counters {
		p = [2]float64{f.Compute, f.Memory}
	} else {
		capped := f.PowerCap
		if math.IsNaN(capped) {
			capped = 0 // old drivers do not report this share
		}
		p = [2]float64{f.Power, -capped}
	}
	return p, !math.IsNaN(p[0]) && !math.IsNaN(p[1])
}

// bound returns how compute-bound a point is.
func bound(p [2]float64) float64 { return p[0] - p[1] }

// less orders points, so that the result does not depend on the order of the jobs.
func less(a, b [2]float64) bool {
	if bound(a) != bound(b) {
		return bound(a) < bound(b)
	}
	return a[0] < b[0]
}

// farthest returns the centers to start with: the first point, and then, twice, the point that is
// farthest from the centers chosen so far.
func farthest(points [][2]float64) (centers [3][2]float64) {
	centers[0] = points[0]
	for k := 1; k < len(centers); k++ {
		best := -1.0
		for _, p := range points {
			if _, d := nearest(centers[:k], p); d > best {
				best, centers[k] = d, p
			}
		}
	}
	return centers
}

// nearest returns the index of the nearest center (on ties, the lowest index), and the squared
// distance to that center.
func nearest(centers [][2]float64, p [2]float64) (int, float64) {
	at, best := 0, math.Inf(1)
	for i, c := range centers {
		dx, dy := p[0]-c[0], p[1]-c[1]
		if d := dx*dx + dy*dy; d < best {
			at, best = i, d
		}
	}
	return at, best
}

// kmeans runs Lloyd's algorithm. An empty group keeps its center. The number of rounds is limited.
func kmeans(points [][2]float64, centers [3][2]float64) [3][2]float64 {
	for range 100 {
		var sum [3][2]float64
		var n [3]float64
		for _, p := range points {
			k, _ := nearest(centers[:], p)
			sum[k][0] += p[0]
			sum[k][1] += p[1]
			n[k]++
		}
		next := centers
		for k := range next {
			if n[k] > 0 {
				next[k] = [2]float64{sum[k][0] / n[k], sum[k][1] / n[k]}
			}
		}
		if next == centers {
			break
		}
		centers = next
	}
	return centers
}

// Judge puts a job into the nearest group. ok is false if the job has too few readings, or lacks
// the values from which the groups were learned. The verdict is sure if the second nearest group is
// more than twice as far away as the nearest group.
func (g Groups) Judge(f Features) (v Verdict, ok bool) {
	p, known := g.point(f)
	if !known || f.Readings < enough {
		return Verdict{Reason: fmt.Sprintf("only %d readings of working GPUs are comparable with the history, but at least %d are needed", f.Readings, enough)}, false
	}
	k, d := nearest(g.Centers[:], p)
	class := pal.AppClasses()[k]
	second := math.Inf(1)
	for i, c := range g.Centers {
		if i != k {
			_, e := nearest([][2]float64{c}, p)
			second = math.Min(second, e)
		}
	}
	what := fmt.Sprintf("power %.0f %%, at its cap %.0f %% of the time", 100*p[0], -100*p[1])
	if g.Counters {
		what = fmt.Sprintf("compute units %.0f %%, memory bandwidth %.0f %%", 100*p[0], 100*p[1])
	}
	return Verdict{Class: class, Reason: what + ", which is closest to the jobs of class " + string(class), Sure: d < second/4}, true
}

// Judge returns the class of the job with features f. Judge compares the job with groups of other
// jobs or, if the other jobs form no groups, with fixed thresholds. The string `by` describes the
// method that Judge used.
func Judge(jobs []Features, f Features) (v Verdict, by string, ok bool) {
	if g, err := Learn(jobs); err == nil {
		if v, ok := g.Judge(f); ok {
			return v, fmt.Sprintf("comparison with %d remembered jobs", len(jobs)), true
		}
	}
	v, ok = ByThresholds(f)
	return v, "thresholds", ok
}
