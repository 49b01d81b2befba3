// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package classify finds the application class of a job from its GPUs' statistics. The package uses
// the power drawn, and the share of time in which the power cap limited the clocks. It also uses
// the loads of the tensor cores and of the memory, if the GPU reports them.
//
// [Summarize] reduces the readings of a job's GPUs to [Features], and [ByThresholds] classifies
// the job.
package classify

import (
	"fmt"
	"math"
	"sort"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Reading is one sample of one GPU of a job. nil means unknown; shares are 0 to 1.
type Reading struct {
	Utilization *float64 // share of time in which any kernel ran
	PowerCap    *float64 // share of time in which the power cap limited the clocks
	Power       *float64 // power drawn, relative to the enforced limit
	Compute     *float64 // load of the tensor cores or the floating-point units, whichever is higher
	Memory      *float64 // share of the memory bandwidth used
}

// Features are the medians of a job's readings. Readings of idle GPUs do not count.
type Features struct {
	Readings int // readings that count
	// PowerCap, Power, Compute and Memory are as in [Reading]; NaN means unknown.
	PowerCap, Power, Compute, Memory float64
}

const (
	// active is the utilization above which a reading counts. While a job waits for data, its
	// readings say nothing about its kernels.
	active = 0.05
	// enough is the minimum number of readings for a verdict.
	enough = 10
)

// Summarize returns the medians of the readings. Readings of idle GPUs, and readings without a
// utilization, are ignored.
func Summarize(rs []Reading) Features {
	var kept []Reading
	for _, r := range rs {
		if r.Utilization != nil && *r.Utilization > active {
			kept = append(kept, r)
		}
	}
	return Features{
		Readings: len(kept),
		PowerCap: medianOf(kept, func(r Reading) *float64 { return r.PowerCap }),
		Power:    medianOf(kept, func(r Reading) *float64 { return r.Power }),
		Compute:  medianOf(kept, func(r Reading) *float64 { return r.Compute }),
		Memory:   medianOf(kept, func(r Reading) *float64 { return r.Memory }),
	}
}

// medianOf returns the median of the known values, or NaN.
func medianOf(rs []Reading, of func(Reading) *float64) float64 {
	var xs []float64
	for _, r := range rs {
		v := of(r)
		if v != nil {
			xs = append(xs, *v)
		}
	}
	if len(xs) == 0 {
		return math.NaN()
	}
	sort.Float64s(xs)
	n := len(xs)
	return (xs[(n-1)/2] + xs[n/2]) / 2
}

// Verdict is the class of a job, and the reason for this class.
type Verdict struct {
	Class pal.AppClass `json:"class"` // application class: A, B, C or D
	// Reason is one sentence with the numbers that decided the class.
	Reason string `json:"reason"`
	// Sure is false if the numbers are near a threshold, or if too few numbers are known to
	// distinguish neighbouring classes.
	Sure bool `json:"sure"`
}

// Thresholds, from measurements on a V100. As a share of its power limit, the V100 drew 0.99 in
// SGEMM, 0.60 in ResNet-50 (with peaks at the cap), 0.51 in BERT and 0.27 in PageRank. For Hopper
// GPUs, the thresholds are only a starting point, because these GPUs have not been measured.
const (
	capBound     = 0.10 // share of time at the power cap: compute-bound
	capNever     = 0.01
	powerHigh    = 0.60 // share of the power limit: compute-bound
	powerLow     = 0.40 // share of the power limit: memory-bound or waiting
	computeHigh  = 0.50
	computeLow   = 0.20
	memoryHigh   = 0.60
	nearBoundary = 0.1 // relative distance to a threshold
)

// ByThresholds classifies one job. ok is false if there are too few readings; the reason then
// says what is missing. The most direct evidence decides first: time at the power cap, then the
// counters of compute and memory, then the power drawn.
func ByThresholds(f Features) (v Verdict, ok bool) {
	known := func(x float64) bool { return !math.IsNaN(x) }
	switch {
	case f.Readings < enough:
		return Verdict{Reason: fmt.Sprintf("only %d readings of working GPUs, but at least %d are needed", f.Readings, enough)}, false
	case known(f.PowerCap) && f.PowerCap >= capBound:
		return verdict(pal.ClassA, f.PowerCap, capBound, "the power cap held clocks down for %.0f %% of the time", 100*f.PowerCap), true
	case known(f.Compute) && known(f.Memory) && f.Memory >= memoryHigh && f.Compute < computeLow:
		return verdict(pal.ClassC, f.Memory, memoryHigh, "%.0f %% of the memory bandwidth and %.0f %% of the compute units used", 100*f.Memory, 100*f.Compute), true
	case known(f.Compute) && known(f.Memory) && f.Compute >= computeHigh && f.Compute > f.Memory:
		return verdict(pal.ClassA, f.Compute, computeHigh, "%.0f %% of the compute units used, %.0f %% of the memory bandwidth", 100*f.Compute, 100*f.Memory), true
	case known(f.Power) && f.Power >= powerHigh:
		return verdict(pal.ClassA, f.Power, powerHigh, "%.0f %% of the power limit drawn", 100*f.Power), true
	case known(f.Power) && f.Power <= powerLow && (!known(f.PowerCap) || f.PowerCap < capNever):
		return lowPower(f), true
	case known(f.Power):
		v := verdict(pal.ClassB, f.Power, powerHigh, "%.0f %% of the power limit drawn, which is neither high nor low", 100*f.Power)
		v.Sure = v.Sure && math.Abs(f.Power-powerLow) > nearBoundary*powerLow
		return v, true
	}
	return Verdict{Reason: "the readings do not contain the power drawn, and no other reading determines the class"}, false
}

// lowPower classifies a job that draws little power. The memory counters distinguish streaming from
// scattered access.
func lowPower(f Features) Verdict {
	if math.IsNaN(f.Memory) {
		return Verdict{Class: pal.ClassD, Reason: fmt.Sprintf(
			"%.0f %% of the power limit drawn, never at the cap, so the job is memory-bound; without memory counters, classes C and D cannot be distinguished", 100*f.Power)}
	}
	if f.Memory >= memoryHigh {
		return verdict(pal.ClassC, f.Memory, memoryHigh, "%.0f %% of the power limit drawn and %.0f %% of the memory bandwidth used", 100*f.Power, 100*f.Memory)
	}
	return verdict(pal.ClassD, f.Memory, memoryHigh, "%.0f %% of the power limit drawn and only %.0f %% of the memory bandwidth used", 100*f.Power, 100*f.Memory)
}

// verdict returns a verdict that is sure unless the deciding value is near its threshold.
func verdict(c pal.AppClass, value, threshold float64, format string, args ...any) Verdict {
	return Verdict{Class: c, Reason: fmt.Sprintf(format, args...), Sure: math.Abs(value-threshold) > nearBoundary*threshold}
}
