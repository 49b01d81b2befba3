// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/nomad-pal/nomad-pal/bench/plot"
	"github.com/nomad-pal/nomad-pal/bench/replay"
)

// Page returns the report as a web page.
func (r *report) Page() plot.Page {
	p := plot.Page{
		Title: "Replay on a real Nomad cluster",
		Lead: []string{
			fmt.Sprintf("%d jobs (%s) on %d emulated GPUs, %v times faster than the trace; a job's work is limited to %.0f s. All times below are compressed. Each repetition has its own jobs and GPUs (seeds from %d on), the same for every scheduler.",
				r.Jobs, r.Workload, r.GPUs, r.Compress, r.LongestS, r.Seed),
			fmt.Sprintf("%d runs at a time, each on its own cluster. %v", r.Parallel, r.Provenance),
			"Lines named nomad are plain Nomad, those named slurm are Slurm with backfill, the others are the placer. Slurm gets the true work of each job, or (…-guesses) a user's guess; no job is stopped by a time limit. Gangs of nomad-binpack wait forever for their missing ranks; those of …-retry10m and …-retry30m give up after 10 and 30 minutes of the trace's time and are placed again at once (Nomad itself would wait 5 s more, which is many minutes of the trace's time). If plain Nomad leaves jobs unfinished, averages over the finished ones favour it.",
		},
		Sections: []plot.Section{{Title: "Against plain Nomad, Slurm and packed placement", Notes: []string{
			fmt.Sprintf("Each line compares a scheduler with the scheduler in the column “against”, on the same jobs and GPUs. The values are the change in percent: the geometric mean of the ratio over the repetitions, with its 95 %% confidence interval. Targets met: the targets are PAL's margins over its baselines (geomean JCT −42 %%, useful utilization +28 %%, makespan −47 %%); “yes” if the whole interval meets the target, “mean” if only the mean does. Repetitions in which plain Nomad deadlocked have no ratio. “At least”: jobs that plain Nomad did not finish count as if they had finished at the end of the run (after %.0f s at most).", r.BoundS)},
			Table: r.marginTable()}},
	}
	for _, v := range r.views() {
		p.Sections = append(p.Sections, v.sections()...)
	}
	return p
}

func (r *report) marginTable() *plot.Table {
	t := &plot.Table{Head: []string{"scheduler", "population", "against", "pairs", "avg JCT", "geomean JCT", "useful utilization", "makespan", "targets met"}}
	for _, m := range r.Margins {
		c := m.cells()
		t.Rows = append(t.Rows, append([]string{c[0], m.Population}, c[1:]...))
	}
	return t
}

// sections returns the sections about one population. It omits empty sections.
func (v view) sections() []plot.Section {
	held := plot.Section{Title: v.title("Gangs half placed"), Notes: []string{fmt.Sprintf("Share of the gangs with several allocations in which some ranks held GPUs in vain: for more than %v per GPU, or until the end of the run. Held in vain: GPU time of ranks that waited for the rest of their gang. Never finished: jobs, over all repetitions, in runs that were ended because of a deadlock or after %.0f s.", replay.HalfPlacedFor, v.BoundS)},
		Table: v.halved()}
	if f, ok := v.held(); ok {
		held.Figures = []plot.Figure{f}
	}
	return slices.DeleteFunc([]plot.Section{
		{Title: v.title("Results"), Notes: []string{"Means over the repetitions and, in parentheses, their 95 % confidence intervals (t distribution), which are wide because each repetition has a different workload; the table above compares runs with the same workload. The average JCT includes all jobs; an unfinished job counts as if it had finished at the end of its run."},
			Table: v.results(), Figures: []plot.Figure{v.avgJCT(), v.jctDistribution(), v.makespan(), v.useful()}},
		held,
		{Title: v.title("Queueing by gang size"), Notes: []string{"Median time from submission until all ranks run. For a gang that never started, the time until the end of the run counts, as a lower bound."},
			Table: v.queueingTable(), Figures: []plot.Figure{v.queueingPlot()}},
		{Title: v.title("Waits"), Notes: []string{waitsNote}, Table: v.waits()},
		{Title: v.title("Overhead"), Notes: []string{"Left: from submission until all ranks run, for jobs that found an empty queue and enough free GPUs. This is the time to start the tasks and, under the placer, to decide. Middle: medians over all gangs that ran once. First: from when the gang was submitted and its GPUs were free until Nomad had placed the whole gang, including waits for other gangs or better GPUs. Second: from this placement until all ranks run. Right: the agent's processor time, including its start, and its memory at the end."}, Table: v.overhead()},
		{Title: v.title("Simulated beside measured"), Notes: []string{"The simulator gets the same jobs, arrivals and GPUs; of the run it knows only how long starting a gang took. Both averages are over the jobs that finished in the run. With jitter: the range of 20 simulations of the same run, in which each job is submitted up to half a second later and each start takes as long as one of the run's starts. If the measured average lies in this range, the difference can be chance: a small delay can decide which of two gangs gets the last GPUs, which delays all later gangs."}, Table: v.simulated()},
	}, func(s plot.Section) bool { return len(s.Table.Rows) == 0 })
}

func (v view) results() *plot.Table {
	t := &plot.Table{Head: []string{"scheduler", "runs", "finished", "avg JCT", "geomean JCT", "p50", "p99", "makespan", "useful", "busy"}}
	for _, l := range v.lines {
		ends := [4]string{}
		if c := l.CI; c != nil {
			ends = [4]string{interval(c.AvgJCT, 1, 1), interval(c.GeomeanJCT, 1, 1), interval(c.Makespan, 1, 0), interval(c.Useful, 100, 1)}
		}
		t.Rows = append(t.Rows, []string{l.title(), fmt.Sprint(l.Repetitions), fmt.Sprintf("%.4g/%d", l.Finished, v.Jobs),
			fmt.Sprintf("%.1f s", l.AvgJCT) + ends[0], fmt.Sprintf("%.1f s", l.GeomeanJCT) + ends[1],
			fmt.Sprintf("%.1f s", l.P50), fmt.Sprintf("%.1f s", l.P99), fmt.Sprintf("%.0f s", l.Makespan) + ends[2],
			fmt.Sprintf("%.1f %%", 100*l.Useful) + ends[3], fmt.Sprintf("%.1f %%", 100*l.Busy)})
	}
	return t
}

// interval formats a confidence interval, to print after its value.
func interval(ends [2]float64, scale float64, digits int) string {
	return fmt.Sprintf(" (%.*f…%.*f)", digits, scale*ends[0], digits, scale*ends[1])
}

func (v view) queueingTable() *plot.Table {
	t := &plot.Table{Head: []string{"scheduler"}}
	for _, size := range v.sizes() {
		t.Head = append(t.Head, fmt.Sprintf("%d GPUs", size))
	}
	for _, l := range v.lines {
		row, q := []string{l.title()}, l.queueing()
		for _, size := range v.sizes() {
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

func (v view) halved() *plot.Table {
	t := &plot.Table{Head: []string{"scheduler", "gangs half placed", "held in vain", "of all GPU time", "nothing ran", "deadlocked runs", "never finished"}}
	for _, l := range v.lines {
		t.Rows = append(t.Rows, []string{l.title(), fmt.Sprintf("%.0f %%", 100*l.HalvedShare), fmt.Sprintf("%.0f GPU s", l.HeldGPU), fmt.Sprintf("%.1f %%", 100*l.HeldShare),
			fmt.Sprintf("%.0f s", l.Deadlocked), fmt.Sprintf("%d of %d", l.DeadlockedRuns, l.Repetitions), fmt.Sprintf("%d of %d", l.Unfinished, l.Repetitions*v.Jobs)})
	}
	return t
}
