// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// speedWorth is what choosing GPUs by their speed is worth: how much less time jobs take under the
// policy pal than under packing that knows no speeds, in the same queue.
type speedWorth struct {
	// Pairs is the number of pairs of runs. The times of submission differ a little from pair to pair
	// and, with -profile, the GPUs are drawn again.
	Pairs   int     `json:"pairs"`
	ClassA  *saving `json:"class_a_run_time,omitempty"` // missing if no job has class A
	Average saving  `json:"average_completion_time"`    // of all jobs
}

// saving is a share of a time, from 0 to 1, with its 95 % confidence interval.
type saving struct {
	Saved float64 `json:"saved"` // the share; below 0 if the time is longer
	Low   float64 `json:"low"`   // lower end of the interval
	High  float64 `json:"high"`  // upper end
}

func savingOf(r sim.Ratio) saving { return saving{1 - r.Value, 1 - r.High, 1 - r.Low} }

// String writes a saving as "3.1 % ± 1.0 %".
func (s saving) String() string {
	return fmt.Sprintf("%.1f %% ± %.1f %%", 100*s.Saved, 50*(s.High-s.Low))
}

func (w *speedWorth) String() string {
	a := ""
	if w.ClassA != nil {
		a = w.ClassA.String() + " of class A's run time, "
	}
	return fmt.Sprintf("choosing GPUs by speed saves %s%s of the average JCT (%d pairs of runs; 95 %% intervals)", a, w.Average, w.Pairs)
}

// Limits of worth: the number of pairs, the number of jobs in all pairs together, and by how much
// the times of submission differ between pairs, in seconds.
const (
	mostPairs, leastPairs = 10, 3
	mostPairedJobs        = 200_000
	shiftS                = 300.0
)

// asksWorth reports whether the report says what speed is worth: the GPUs are the user's own, and
// the placement is pal.
func (o *options) asksWorth(nodes []pal.Node) bool {
	_, other := o.baseline()
	return (o.fromHistory || o.profile != "") && !other && o.rules.Placement == pal.PAL && differ(nodes)
}

// differ reports whether two GPUs have different scores.
func differ(nodes []pal.Node) bool {
	first := nodes[0].Groups[0].GPUs[0].Scores
	return slices.ContainsFunc(nodes, func(n pal.Node) bool {
		return slices.ContainsFunc(n.Groups, func(g pal.DeviceGroup) bool {
			return slices.ContainsFunc(g.GPUs, func(u pal.GPU) bool { return u.Scores != first })
		})
	})
}

// worth runs the pairs.
func (o *options) worth(t trace.Trace, nodes []pal.Node) (*speedWorth, error) {
	w := &speedWorth{Pairs: min(mostPairs, max(leastPairs, mostPairedJobs/len(t.Jobs)))}
	var runs, jcts [2]times // by speed, and blind
	for i := range w.Pairs {
		by := *o
		by.seed += uint64(i)
		if i > 0 && o.profile != "" {
			var err error
			if nodes, err = by.drawNodes(); err != nil {
				return nil, err
			}
		}
		shifted := t
		shifted.Jobs = shift(t.Jobs, by.seed)
		blind := by
		blind.rules.Placement, blind.rules.Queue.OutlierThreshold = pal.Packed, 0
		var outs [2]sim.Outcome
		for k, o := range []options{by, blind} {
			c, err := pal.NewCluster(nodes, o.rules.Locality)
			if err != nil {
				return nil, err
			}
			cfg, err := o.world(shifted, c)
			if err != nil {
				return nil, err
			}
			if outs[k], err = cfg.Run(); err != nil {
				return nil, err
			}
		}
		for k := range outs {
			jct, run := totals(outs[k], outs[1-k])
			jcts[k], runs[k] = append(jcts[k], jct), append(runs[k], run)
		}
	}
	w.Average = savingOf(over(jcts))
	if slices.ContainsFunc(t.Jobs, func(j trace.Job) bool { return j.Class == pal.ClassA }) {
		a := savingOf(over(runs))
		w.ClassA = &a
	}
	return w, nil
}

// shift returns the jobs, each submitted a little later.
func shift(jobs []trace.Job, seed uint64) []trace.Job {
	rng := rand.New(rand.NewPCG(seed, 0x511f7))
	jobs = slices.Clone(jobs)
	for i := range jobs {
		jobs[i].SubmitS += shiftS * rng.Float64()
	}
	slices.SortStableFunc(jobs, func(a, b trace.Job) int { return cmp.Compare(a.SubmitS, b.SubmitS) })
	return jobs
}

// times are one number for each pair, in seconds.
type times []float64

// over compares the first times with the second.
func over(of [2]times) sim.Ratio {
	weight := make(times, len(of[0]))
	for i := range weight {
		weight[i] = of[0][i] + of[1][i]
	}
	return sim.RatioOf(of[0], of[1], weight)
}

// totals adds up the completion times of all jobs, and the run times of class A, of the jobs that
// finish in both runs.
func totals(of, other sim.Outcome) (jct, runA float64) {
	for i, j := range of.Jobs {
		if j.Finish < 0 || other.Jobs[i].Finish < 0 {
			continue
		}
		jct += j.JCT()
		if j.Class == pal.ClassA {
			runA += j.HeldS
		}
	}
	return jct, runA
}
