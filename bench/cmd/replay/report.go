// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/replay"
	"github.com/nomad-pal/nomad-pal/internal/version"
)

// report is the result file.
type report struct {
	Command  []string `json:"command"`
	Commit   string   `json:"commit"`
	Go       string   `json:"go"`
	CPUs     int      `json:"cpus"`
	Date     string   `json:"date"`
	Seed     uint64   `json:"seed"`
	Workload string   `json:"workload"`
	Compress float64  `json:"compress"`
	LongestS float64  `json:"longest_s"` // work of a job is cut there
	GPUs     int      `json:"gpus"`
	Outliers int      `json:"outliers"`
	Jobs     int      `json:"jobs"`
	Runs     []*line  `json:"runs"`
}

// line is one scheduler: medians over its repetitions, in compressed seconds.
type line struct {
	Scheduler   string  `json:"scheduler"`
	Preemption  bool    `json:"preemption"`
	Repetitions int     `json:"repetitions"`
	Finished    float64 `json:"finished_jobs"`
	GeomeanJCT  float64 `json:"geomean_jct_s"`
	AvgJCT      float64 `json:"avg_jct_s"`
	// AvgJCTAll counts jobs that did not finish until the end of their run; a
	// lower bound.
	AvgJCTAll float64 `json:"avg_jct_all_at_least_s"`
	// AvgJCTLow and AvgJCTHigh are the least and the most of the repetitions.
	AvgJCTLow  float64 `json:"avg_jct_low_s"`
	AvgJCTHigh float64 `json:"avg_jct_high_s"`
	// AvgJCTCILow and AvgJCTCIHigh are the 95 % confidence interval of the mean
	// of the repetitions' averages; absent with one repetition.
	AvgJCTCILow  *float64 `json:"avg_jct_ci_low_s,omitempty"`
	AvgJCTCIHigh *float64 `json:"avg_jct_ci_high_s,omitempty"`
	// SimAvgJCT is what the simulator says of the jobs that finished in the same
	// runs; 0 under plain Nomad.
	SimAvgJCT  float64 `json:"simulated_avg_jct_s,omitempty"`
	P50        float64 `json:"p50_jct_s"`
	P99        float64 `json:"p99_jct_s"`
	Makespan   float64 `json:"makespan_s"`
	Useful     float64 `json:"useful_utilisation"`
	Busy       float64 `json:"utilisation"`
	HalfPlaced float64 `json:"half_placed_s"`
	// HalvedShare is the share of the gangs that were half placed.
	HalvedShare float64          `json:"half_placed_gangs"`
	Deadlocked  float64          `json:"deadlocked_s"`
	Raw         []*replay.Result `json:"raw"`
	gpus        int
}

func newReport(o options, g *replay.GPUs, jobs []replay.Job) *report {
	name := o.workload
	if name == "" {
		name = fmt.Sprintf("generated, seed %d", o.seed)
	} else {
		name = filepath.Base(name)
	}
	return &report{
		Command: replay.Invocation("replay", os.Args[1:]), Commit: version.Revision, Go: runtime.Version(), CPUs: runtime.NumCPU(),
		Date: time.Now().UTC().Format(time.DateOnly), Seed: o.seed, Workload: name, Compress: o.compress,
		LongestS: o.longest.Seconds(), GPUs: len(g.All), Outliers: o.outliers, Jobs: len(jobs),
	}
}

func (r *report) add(s scheduler, res *replay.Result) {
	i := slices.IndexFunc(r.Runs, func(l *line) bool { return l.Scheduler == s.name && l.Preemption == s.preempt })
	if i < 0 {
		i = len(r.Runs)
		r.Runs = append(r.Runs, &line{Scheduler: s.name, Preemption: s.preempt, gpus: r.GPUs})
	}
	r.Runs[i].Raw = append(r.Runs[i].Raw, res)
	r.Runs[i].summarise()
}

// summarise takes medians over the repetitions.
func (l *line) summarise() {
	l.Repetitions = len(l.Raw)
	median := func(f func(*replay.Result, replay.Summary) float64) float64 { return replay.Median(l.each(f)) }
	l.Finished = median(func(_ *replay.Result, s replay.Summary) float64 { return float64(s.Finished) })
	l.GeomeanJCT = median(func(_ *replay.Result, s replay.Summary) float64 { return s.GeomeanJCT.Seconds() })
	l.AvgJCT = median(func(_ *replay.Result, s replay.Summary) float64 { return s.AvgJCT.Seconds() })
	l.AvgJCTAll = median(func(r *replay.Result, _ replay.Summary) float64 { return r.AvgJCTAtLeast().Seconds() })
	l.Makespan = median(func(_ *replay.Result, s replay.Summary) float64 { return s.Makespan.Seconds() })
	l.Useful = median(func(_ *replay.Result, s replay.Summary) float64 { return s.Useful })
	l.Busy = median(func(_ *replay.Result, s replay.Summary) float64 { return s.Utilisation })
	l.P50 = median(func(r *replay.Result, _ replay.Summary) float64 { return percentile(r, 0.5) })
	l.P99 = median(func(r *replay.Result, _ replay.Summary) float64 { return percentile(r, 0.99) })
	l.HalfPlaced = median(func(r *replay.Result, _ replay.Summary) float64 { return r.HalfPlaced.Seconds() })
	l.Deadlocked = median(func(r *replay.Result, _ replay.Summary) float64 { return r.Deadlocked.Seconds() })
	l.SimAvgJCT = median(func(r *replay.Result, _ replay.Summary) float64 {
		if r.Predicted == nil {
			return 0
		}
		return r.Predicted.AvgJCTOf(r)
	})
	l.HalvedShare = median(func(r *replay.Result, _ replay.Summary) float64 { return r.HalvedShare() })
	avgs := l.each(func(_ *replay.Result, s replay.Summary) float64 { return s.AvgJCT.Seconds() })
	l.AvgJCTLow, l.AvgJCTHigh = slices.Min(avgs), slices.Max(avgs)
	l.AvgJCTCILow, l.AvgJCTCIHigh = nil, nil
	if low, high, ok := replay.Confidence(avgs); ok {
		l.AvgJCTCILow, l.AvgJCTCIHigh = &low, &high
	}
}

// each is a figure of every repetition.
func (l *line) each(f func(*replay.Result, replay.Summary) float64) []float64 {
	var xs []float64
	for _, r := range l.Raw {
		xs = append(xs, f(r, r.Summarise(l.gpus)))
	}
	return xs
}

// interval is the confidence interval in words.
func (l *line) interval() string {
	if l.AvgJCTCILow == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f…%.1f", *l.AvgJCTCILow, *l.AvgJCTCIHigh)
}

func percentile(r *replay.Result, p float64) float64 {
	var xs []float64
	for _, j := range r.Jobs {
		if j.JCT() > 0 {
			xs = append(xs, j.JCT().Seconds())
		}
	}
	if len(xs) == 0 {
		return 0
	}
	slices.Sort(xs)
	return xs[int(p*float64(len(xs)-1))]
}

func (r *report) write(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("encode results: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "%s, %d jobs, %d GPUs of which %d outliers, %v× compressed; compressed seconds, medians\n", r.Workload, r.Jobs, r.GPUs, r.Outliers, r.Compress)
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SCHEDULER\tPREEMPTION\tRUNS\tFINISHED\tAVG JCT\t95 %\tLOW…HIGH\tSIMULATED\tGEOMEAN\tP99\tMAKESPAN\tUSEFUL\tHALF PLACED\tDEADLOCKED")
	for _, l := range r.Runs {
		fmt.Fprintf(w, "%s\t%v\t%d\t%v/%d\t%.1f\t%s\t%.1f…%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f %%\t%.1f\t%.1f\n", l.Scheduler, l.Preemption, l.Repetitions, l.Finished, r.Jobs,
			l.AvgJCT, l.interval(), l.AvgJCTLow, l.AvgJCTHigh, l.SimAvgJCT, l.GeomeanJCT, l.P99, l.Makespan, 100*l.Useful, l.HalfPlaced, l.Deadlocked)
	}
	w.Flush()
}
