// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"

	"github.com/nomad-pal/nomad-pal/bench/replay"
)

// The targets are the margins that PAL reports over its baselines: 42 % lower
// geomean JCT, 28 % more useful work in the same GPU time, 47 % shorter makespan.
const (
	geomeanTarget  = 1 - 0.42
	usefulTarget   = 1 + 0.28
	makespanTarget = 1 - 0.47
)

// margin compares one line of the placer with one of plain Nomad or Slurm, or with the placer that
// only packs, run by run. Compared runs have the same jobs and GPUs.
type margin struct {
	Population string `json:"population"`
	Scheduler  string `json:"scheduler"`
	Preemption bool   `json:"preemption"`
	Against    string `json:"against"`
	// Pairs is the number of compared repetitions. A repetition has no ratio if plain Nomad
	// deadlocked, if the placer did not finish all jobs, or if the other line finished no job.
	Pairs      int `json:"pairs"`
	Deadlocked int `json:"deadlocked"`
	Unfinished int `json:"unfinished"`
	// AtLeast reports whether the other line left jobs unfinished. Unfinished jobs count as if they
	// had finished at the end of the run, so the true margins are larger.
	AtLeast    bool   `json:"at_least"`
	AvgJCT     *ratio `json:"avg_jct,omitempty"`
	GeomeanJCT *ratio `json:"geomean_jct,omitempty"`
	Useful     *ratio `json:"useful_utilization,omitempty"`
	Makespan   *ratio `json:"makespan,omitempty"`
	title      string
}

// ratio is the placer's figure divided by the other line's: the geometric mean over the pairs and
// its 95 % confidence interval. A single pair has no interval.
type ratio struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low,omitempty"`
	High float64 `json:"high,omitempty"`
	// Target is the largest acceptable ratio for JCT and makespan, and the smallest acceptable
	// ratio for utilization. 0 means that there is no target. Met reports whether the mean meets
	// the target; Surely, whether the whole interval meets the target.
	Target float64 `json:"target,omitempty"`
	Met    bool    `json:"met"`
	Surely bool    `json:"surely_met"`
}

// margins compares every line of the placer with every line of plain Nomad and Slurm, and with the
// placer's own pal-packed, on the same population.
func (r *report) margins() []*margin {
	var out []*margin
	for _, l := range r.Runs {
		for _, o := range r.Runs {
			base := o.theirs() || o.Scheduler == "pal-packed" && o != l
			if !l.theirs() && base && l.Outliers == o.Outliers {
				out = append(out, l.against(o))
			}
		}
	}
	return out
}

func (l *line) against(o *line) *margin {
	m := &margin{Population: l.Population, Scheduler: l.Scheduler, Preemption: l.Preemption, Against: o.Scheduler, title: l.title()}
	var avg, geomean, useful, makespan []float64
	for _, ours := range l.Raw {
		its := o.of(ours.Seed)
		if its == nil {
			continue
		}
		a, b := ours.AtLeast(l.gpus), its.AtLeast(o.gpus)
		switch {
		case its.Stuck:
			m.Deadlocked++
			continue
		case a.Finished < a.Jobs || b.Finished == 0:
			m.Unfinished++
			continue
		}
		m.Pairs++
		m.AtLeast = m.AtLeast || b.Finished < b.Jobs
		avg = append(avg, float64(a.AvgJCT)/float64(b.AvgJCT))
		geomean = append(geomean, float64(a.GeomeanJCT)/float64(b.GeomeanJCT))
		useful = append(useful, a.Useful/b.Useful)
		makespan = append(makespan, float64(a.Makespan)/float64(b.Makespan))
	}
	m.AvgJCT = newRatio(avg, 0)
	m.GeomeanJCT = newRatio(geomean, geomeanTarget)
	m.Useful, m.Makespan = newRatio(useful, usefulTarget), newRatio(makespan, makespanTarget)
	return m
}

// newRatio returns the ratio of paired values. A target above 1 is a minimum, a target below 1 a
// maximum.
func newRatio(xs []float64, target float64) *ratio {
	if len(xs) == 0 {
		return nil
	}
	mean, low, high, ok := replay.Ratio(xs)
	r := &ratio{Mean: mean, Target: target}
	if ok {
		r.Low, r.High = low, high
	}
	switch {
	case target > 1:
		r.Met, r.Surely = mean >= target, ok && low >= target
	case target > 0:
		r.Met, r.Surely = mean <= target, ok && high <= target
	}
	return r
}

// String returns the change in percent.
func (r *ratio) String() string {
	if r == nil {
		return "–"
	}
	change := func(v float64) string { return fmt.Sprintf("%+.0f", 100*(v-1)) }
	if r.High == 0 {
		return change(r.Mean) + " %"
	}
	return fmt.Sprintf("%s %% (%s…%s)", change(r.Mean), change(r.Low), change(r.High))
}

// verdict returns a text that says which of the three targets are met.
func (m *margin) verdict() string {
	if m.Pairs == 0 {
		return "–"
	}
	word := func(r *ratio) string {
		switch {
		case r.Surely:
			return "yes"
		case r.Met:
			return "mean"
		}
		return "no"
	}
	return fmt.Sprintf("%s / %s / %s", word(m.GeomeanJCT), word(m.Useful), word(m.Makespan))
}

// cells returns the margin's row in a table, without the population.
func (m *margin) cells() []string {
	pairs := fmt.Sprint(m.Pairs)
	if m.Deadlocked > 0 {
		pairs += fmt.Sprintf(", %d deadlocked", m.Deadlocked)
	}
	if m.Unfinished > 0 {
		pairs += fmt.Sprintf(", %d unfinished", m.Unfinished)
	}
	if m.AtLeast {
		pairs += ", at least"
	}
	return []string{m.title, m.Against, pairs, m.AvgJCT.String(), m.GeomeanJCT.String(), m.Useful.String(), m.Makespan.String(), m.verdict()}
}
