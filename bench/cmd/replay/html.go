// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/bench/plot"
	"github.com/nomad-pal/nomad-pal/bench/replay"
)

// page is the report for people.
func (r *report) page() plot.Page {
	return plot.Page{
		Title: "Replay on a real Nomad cluster",
		Lead: []string{
			fmt.Sprintf("%d jobs (%s) on %d emulated GPUs, %d of them outliers, %v times faster than the trace; the work of a job is cut at %.0f s. Every time below is compressed. The same jobs, arrivals and GPUs under each scheduler.",
				r.Jobs, r.Workload, r.GPUs, r.Outliers, r.Compress, r.LongestS),
			fmt.Sprintf("%s, commit %s, %s, %d cores. Command: %s.", r.Date, r.Commit, r.Go, r.CPUs, strings.Join(r.Command, " ")),
			"Lines named nomad are plain Nomad, the others the placer. Plain Nomad leaves jobs unfinished when gangs hold GPUs that other gangs wait for; averages are over the jobs that finished, which favours whoever leaves the long and wide ones.",
		},
		Sections: append([]plot.Section{
			{Title: "Results", Notes: []string{"Medians over the repetitions; the interval is the 95 % confidence interval of the average JCT (t distribution). “All jobs” counts those that did not finish until the end of their run."}, Table: r.results(),
				Figures: []plot.Figure{r.avgJCT(), r.jctDistribution(), r.makespan(), r.useful()}},
		}, r.details()...),
	}
}

// details are the further sections, without those that have nothing to say.
func (r *report) details() []plot.Section {
	return slices.DeleteFunc([]plot.Section{
		{Title: "Against plain Nomad", Notes: []string{"Change of the median; negative is less. Where plain Nomad did not finish all jobs, its JCTs and makespan miss those jobs."}, Table: r.margins()},
		{Title: "Queueing by gang size", Notes: []string{"Median time from submission to the moment when all ranks are there. A gang that never started counts until the end of its run: it waited at least so long."},
			Table: r.queueingTable(), Figures: []plot.Figure{r.queueingPlot()}},
		{Title: "Gangs half placed", Notes: []string{fmt.Sprintf("Share of the gangs of several allocations of which some ranks held GPUs in vain: more than %v per GPU, or until the end of the run. Half placed is the time summed over such moments of all gangs, deadlocked the time in which gangs held GPUs so and none ran.", replay.HalfPlacedFor)},
			Table: r.halved()},
		{Title: "Overhead", Notes: []string{"Submission until all ranks are there, for jobs before which nothing waited and for which enough GPUs were free: starting the tasks, and under the placer its decision on top."}, Table: r.overhead()},
		{Title: "Simulated beside measured", Notes: []string{"The simulator on the same jobs, arrivals and GPUs; it is told what starting a gang takes and nothing else of the run. Both over the jobs that finished in the run."}, Table: r.simulated()},
	}, func(s plot.Section) bool { return len(s.Table.Rows) == 0 })
}

func (r *report) results() *plot.Table {
	t := &plot.Table{Head: []string{"scheduler", "runs", "finished", "avg JCT", "95 % interval", "low…high", "avg, all jobs", "geomean JCT", "p50", "p99", "makespan", "useful", "busy"}}
	for _, l := range r.Runs {
		t.Rows = append(t.Rows, []string{l.title(), fmt.Sprint(l.Repetitions), fmt.Sprintf("%v/%d", l.Finished, r.Jobs), fmt.Sprintf("%.1f s", l.AvgJCT), l.interval(),
			fmt.Sprintf("%.1f…%.1f", l.AvgJCTLow, l.AvgJCTHigh), fmt.Sprintf("≥ %.1f s", l.AvgJCTAll), fmt.Sprintf("%.1f s", l.GeomeanJCT), fmt.Sprintf("%.1f s", l.P50), fmt.Sprintf("%.1f s", l.P99),
			fmt.Sprintf("%.0f s", l.Makespan), fmt.Sprintf("%.1f %%", 100*l.Useful), fmt.Sprintf("%.1f %%", 100*l.Busy)})
	}
	return t
}

// margins compares every line of the placer with every one of plain Nomad.
func (r *report) margins() *plot.Table {
	t := &plot.Table{Head: []string{"scheduler", "against", "its finished jobs", "geomean JCT", "avg JCT", "useful utilisation", "makespan"}}
	change := func(a, b float64) string {
		if b == 0 {
			return "–"
		}
		return fmt.Sprintf("%+.0f %%", 100*(a/b-1))
	}
	for _, l := range r.Runs {
		for _, o := range r.Runs {
			if !l.plain() && o.plain() {
				t.Rows = append(t.Rows, []string{l.title(), o.title(), fmt.Sprintf("%v/%d", o.Finished, r.Jobs), change(l.GeomeanJCT, o.GeomeanJCT),
					change(l.AvgJCT, o.AvgJCT), change(l.Useful, o.Useful), change(l.Makespan, o.Makespan)})
			}
		}
	}
	return t
}

func (r *report) queueingTable() *plot.Table {
	t := &plot.Table{Head: []string{"scheduler"}}
	for _, size := range r.sizes() {
		t.Head = append(t.Head, fmt.Sprintf("%d GPUs", size))
	}
	for _, l := range r.Runs {
		row, q := []string{l.title()}, l.queueing()
		for _, size := range r.sizes() {
			if v, ok := q[size]; ok {
				row = append(row, fmt.Sprintf("%.1f s", v))
			} else {
				row = append(row, "–")
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (r *report) halved() *plot.Table {
	t := &plot.Table{Head: []string{"scheduler", "gangs half placed", "half placed", "deadlocked"}}
	for _, l := range r.Runs {
		t.Rows = append(t.Rows, []string{l.title(), fmt.Sprintf("%.0f %%", 100*l.HalvedShare), fmt.Sprintf("%.0f s", l.HalfPlaced), fmt.Sprintf("%.0f s", l.Deadlocked)})
	}
	return t
}

func (r *report) overhead() *plot.Table {
	t := &plot.Table{Head: []string{"scheduler", "jobs", "median", "p95"}}
	for _, l := range r.Runs {
		row := []string{l.title(), "0", "–", "–"}
		if xs := l.starts(); len(xs) > 0 {
			row = []string{l.title(), fmt.Sprint(len(xs)), seconds(replay.Median(xs)), seconds(xs[min(len(xs)-1, len(xs)*95/100)])}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (r *report) simulated() *plot.Table {
	t := &plot.Table{Head: []string{"scheduler", "measured avg JCT", "simulated", "difference"}}
	for _, l := range r.Runs {
		if l.SimAvgJCT > 0 {
			t.Rows = append(t.Rows, []string{l.title(), fmt.Sprintf("%.1f s", l.AvgJCT), fmt.Sprintf("%.1f s", l.SimAvgJCT), fmt.Sprintf("%+.1f %%", 100*(l.SimAvgJCT/l.AvgJCT-1))})
		}
	}
	return t
}
