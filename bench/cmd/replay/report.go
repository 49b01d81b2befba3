// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/bench/command"
	"github.com/nomad-pal/nomad-pal/bench/replay"
)

// report is the result file, which is written twice: with the raw runs, and without the raw runs
// for human readers.
type report struct {
	command.Provenance
	Seed        uint64    `json:"seed"` // seed of the first repetition
	Workload    string    `json:"workload"`
	Compress    float64   `json:"compress"`
	LongestS    float64   `json:"longest_s"`            // limit of a job's work
	BoundS      float64   `json:"bound_s"`              // time limit of a run
	MaxWaitS    float64   `json:"max_wait_s,omitempty"` // max_wait of the placer's queue, before compression
	Overload    float64   `json:"overload,omitempty"`   // of an added hour: its work, divided by the cluster's capacity in an hour
	Single      int       `json:"single"`               // gangs of up to this many GPUs have ranks with one GPU each
	GPUs        int       `json:"gpus"`
	Jobs        int       `json:"jobs"`
	Repetitions int       `json:"repetitions"` // planned number of repetitions
	Parallel    int       `json:"parallel"`    // runs at a time
	Margins     []*margin `json:"margins"`
	Runs        []*line   `json:"runs"`
}

// line has the results of one scheduler on one population: means over the repetitions, in
// compressed seconds.
type line struct {
	Scheduler   string `json:"scheduler"`
	Preemption  bool   `json:"preemption"`
	Population  string `json:"population"`
	Outliers    int    `json:"outliers"`
	Repetitions int    `json:"repetitions"`
	// Finished is the number of jobs that finished. Unfinished is the number of jobs that did not
	// finish, in all repetitions together.
	Finished   float64 `json:"finished_jobs"`
	Unfinished int     `json:"unfinished_jobs_in_all"`
	// DeadlockedRuns is how many runs ended because of a deadlock, BoundedRuns how many reached the
	// time limit.
	DeadlockedRuns int     `json:"deadlocked_runs"`
	BoundedRuns    int     `json:"bounded_runs"`
	GeomeanJCT     float64 `json:"geomean_jct_s"`
	// AvgJCT includes all jobs of all repetitions. An unfinished job counts as if it had finished
	// at the end of its run, so with unfinished jobs AvgJCT is a lower bound.
	AvgJCT float64 `json:"avg_jct_s"`
	// AvgJCTLow and AvgJCTHigh are the averages of the fastest and the slowest repetition.
	AvgJCTLow  float64 `json:"avg_jct_low_s"`
	AvgJCTHigh float64 `json:"avg_jct_high_s"`
	// CI are 95 % confidence intervals of the mean over the repetitions, whose
	// workloads differ; absent with one repetition.
	CI *intervals `json:"ci,omitempty"`
	// SimAvgJCT is the simulator's average, over the jobs that finished in the measured runs; 0
	// under plain Nomad.
	SimAvgJCT float64 `json:"simulated_avg_jct_s,omitempty"`
	// SimClose is the number of runs that the simulator predicts within 5 %. SimChance is how many
	// of the other runs are within the range of the simulations with jitter.
	SimClose  int      `json:"simulated_within_5_percent,omitempty"`
	SimChance int      `json:"simulated_within_chance,omitempty"`
	Overhead  overhead `json:"overhead"`
	Waits     waits    `json:"waits"`
	P50       float64  `json:"p50_jct_s"`
	P99       float64  `json:"p99_jct_s"`
	Makespan  float64  `json:"makespan_s"`
	Useful    float64  `json:"useful_utilization"`
	Busy      float64  `json:"utilization"`
	// HalfPlaced is summed over gangs, HeldGPU over GPUs. HeldShare is HeldGPU's share of the run's
	// GPU time.
	HalfPlaced float64 `json:"half_placed_s"`
	HeldGPU    float64 `json:"held_in_vain_gpu_s"`
	HeldShare  float64 `json:"held_in_vain"`
	// HalvedShare is the share of gangs that were half placed.
	HalvedShare float64          `json:"half_placed_gangs"`
	Deadlocked  float64          `json:"deadlocked_s"`
	Raw         []*replay.Result `json:"raw,omitempty"`
	gpus        int
}

// intervals are the ends of a line's confidence intervals.
type intervals struct {
	AvgJCT     [2]float64 `json:"avg_jct_s"`
	GeomeanJCT [2]float64 `json:"geomean_jct_s"`
	Makespan   [2]float64 `json:"makespan_s"`
	Useful     [2]float64 `json:"useful_utilization"`
}

func newReport(o options) *report {
	name := "generated"
	if o.workload != "" {
		name = filepath.Base(o.workload)
	}
	return &report{
		Provenance: command.NewProvenance("replay"), Seed: o.seed, Workload: name, Compress: o.compress,
		LongestS: o.longest.Seconds(), BoundS: o.bound.Seconds(), MaxWaitS: o.maxWait.Seconds(), Overload: o.overload, Single: o.single, Repetitions: o.reps, Parallel: o.parallel,
	}
}

// populationName describes the GPUs that a line runs on.
func populationName(outliers int) string {
	switch outliers {
	case 0:
		return "no outlier"
	case 1:
		return "1 outlier"
	}
	return fmt.Sprintf("%d outliers", outliers)
}

// sameAs returns an error if the runs of another report had other settings. One file can have only
// runs with the same settings.
func (r *report) sameAs(o *report) error {
	for _, v := range []struct {
		name      string
		ours, its any
	}{
		{"seed", r.Seed, o.Seed}, {"workload", r.Workload, o.Workload}, {"compress", r.Compress, o.Compress}, {"longest", r.LongestS, o.LongestS},
		{"bound", r.BoundS, o.BoundS}, {"max_wait", r.MaxWaitS, o.MaxWaitS}, {"overload", r.Overload, o.Overload}, {"single", r.Single, o.Single}, {"GPUs", r.GPUs, o.GPUs}, {"jobs", r.Jobs, o.Jobs}, {"processors", r.CPUs, o.CPUs},
	} {
		if v.ours != v.its {
			return fmt.Errorf("its %s is %v, now %v", v.name, v.its, v.ours)
		}
	}
	return nil
}

func (r *report) line(s scheduler, outliers int) *line {
	i := slices.IndexFunc(r.Runs, func(l *line) bool {
		return l.Scheduler == s.name && l.Preemption == s.preempt && l.Outliers == outliers
	})
	if i < 0 {
		return nil
	}
	return r.Runs[i]
}

func (r *report) has(t task) bool {
	l := r.line(t.scheduler, t.outliers)
	return l != nil && l.of(t.seed) != nil
}

// add adds a run. Lines and repetitions stay sorted.
func (r *report) add(t task, res *replay.Result) {
	res.Seed = t.seed
	for i := range res.Jobs {
		res.Jobs[i].Trim()
	}
	l := r.line(t.scheduler, t.outliers)
	if l == nil {
		l = &line{Scheduler: t.name, Preemption: t.preempt, Outliers: t.outliers, Population: populationName(t.outliers), gpus: r.GPUs}
		r.Runs = append(r.Runs, l)
		slices.SortFunc(r.Runs, func(a, b *line) int {
			return cmp.Or(cmp.Compare(b.Outliers, a.Outliers), cmp.Compare(place(a.Scheduler, a.Preemption), place(b.Scheduler, b.Preemption)))
		})
	}
	l.Raw = append(l.Raw, res)
	slices.SortFunc(l.Raw, func(a, b *replay.Result) int { return cmp.Compare(a.Seed, b.Seed) })
	l.summarize(r)
	r.Margins = r.margins()
}

// of returns the repetition with this seed, nil if the line has none.
func (l *line) of(seed uint64) *replay.Result {
	for _, raw := range l.Raw {
		if raw.Seed == seed {
			return raw
		}
	}
	return nil
}

// summarize computes the line's figures: means over the repetitions.
func (l *line) summarize(r *report) {
	l.Repetitions = len(l.Raw)
	mean := l.mean
	l.Finished = mean(func(_ *replay.Result, s replay.Summary) float64 { return float64(s.Finished) })
	l.GeomeanJCT, l.AvgJCT, l.Makespan, l.Useful = mean(geomeanJCT), mean(avgJCT), mean(makespan), mean(useful)
	l.Busy = mean(func(_ *replay.Result, s replay.Summary) float64 { return s.Utilization })
	l.P50 = mean(func(r *replay.Result, _ replay.Summary) float64 { return r.PercentileAtLeast(0.5).Seconds() })
	l.P99 = mean(func(r *replay.Result, _ replay.Summary) float64 { return r.PercentileAtLeast(0.99).Seconds() })
	l.HalfPlaced = mean(func(r *replay.Result, _ replay.Summary) float64 { return r.HalfPlaced.Seconds() })
	l.HeldGPU = mean(func(r *replay.Result, _ replay.Summary) float64 { return r.HeldInVain.Seconds() })
	l.HeldShare = mean(func(r *replay.Result, _ replay.Summary) float64 { return r.HeldShare(l.gpus) })
	l.Deadlocked = mean(func(r *replay.Result, _ replay.Summary) float64 { return r.Deadlocked.Seconds() })
	l.simulate()
	l.Overhead = l.overhead()
	l.Waits = l.waits(r)
	l.HalvedShare = mean(func(r *replay.Result, _ replay.Summary) float64 { return r.HalvedShare() })
	l.count()
	avgs := l.each(avgJCT)
	l.AvgJCTLow, l.AvgJCTHigh = slices.Min(avgs), slices.Max(avgs)
	l.CI = nil
	if len(l.Raw) > 1 {
		l.CI = &intervals{AvgJCT: l.interval(avgJCT), GeomeanJCT: l.interval(geomeanJCT), Makespan: l.interval(makespan), Useful: l.interval(useful)}
	}
}

// count counts the unfinished jobs of all runs, and the runs that deadlocked or reached the time
// limit.
func (l *line) count() {
	l.Unfinished, l.DeadlockedRuns, l.BoundedRuns = 0, 0, 0
	for _, r := range l.Raw {
		s := r.Summarize(l.gpus)
		l.Unfinished += s.Jobs - s.Finished
		if r.Stuck {
			l.DeadlockedRuns++
		}
		if r.Bounded {
			l.BoundedRuns++
		}
	}
}

func avgJCT(r *replay.Result, _ replay.Summary) float64     { return r.AvgJCTAtLeast().Seconds() }
func geomeanJCT(_ *replay.Result, s replay.Summary) float64 { return s.GeomeanJCT.Seconds() }
func makespan(_ *replay.Result, s replay.Summary) float64   { return s.Makespan.Seconds() }
func useful(_ *replay.Result, s replay.Summary) float64     { return s.Useful }

// mean returns a figure's mean over the repetitions.
func (l *line) mean(f func(*replay.Result, replay.Summary) float64) float64 {
	sum := 0.0
	for _, x := range l.each(f) {
		sum += x / float64(len(l.Raw))
	}
	return sum
}

// each returns one figure for each repetition.
func (l *line) each(f func(*replay.Result, replay.Summary) float64) []float64 {
	var xs []float64
	for _, r := range l.Raw {
		xs = append(xs, f(r, r.Summarize(l.gpus)))
	}
	return xs
}

// interval returns the confidence interval of a figure.
func (l *line) interval(f func(*replay.Result, replay.Summary) float64) [2]float64 {
	low, high, _ := replay.Confidence(l.each(f))
	return [2]float64{low, high}
}

// runsFile returns the path of the file with the raw runs, in the same folder. Reports are made
// from this file.
func runsFile(path string) string { return strings.TrimSuffix(path, ".json") + "-runs.json.gz" }

func (r *report) write(path string) error {
	if err := command.WriteJSON(runsFile(path), r); err != nil {
		return err
	}
	short := *r
	short.Runs = nil
	for _, l := range r.Runs {
		figures := *l
		figures.Raw = nil
		short.Runs = append(short.Runs, &figures)
	}
	return command.WriteJSON(path, short)
}
