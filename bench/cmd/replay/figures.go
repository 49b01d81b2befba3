// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/command"
	"github.com/nomad-pal/nomad-pal/bench/plot"
	"github.com/nomad-pal/nomad-pal/bench/replay"
)

// readReport returns a report with the runs of a result file, and computes the figures from these
// runs.
func readReport(path string) (*report, error) {
	r := &report{}
	path = runsFile(path)
	if err := command.Read(path, r); err != nil {
		return nil, err
	}
	for _, l := range r.Runs {
		if len(l.Raw) == 0 {
			return nil, fmt.Errorf("reading results %q: scheduler %q has no raw results", path, l.Scheduler)
		}
		if l.Population == "" {
			return nil, fmt.Errorf("reading results %q: scheduler %q has no population: the file was written by an older version", path, l.Scheduler)
		}
		l.gpus = r.GPUs
		l.summarize(r)
	}
	r.Margins = r.margins()
	return r, nil
}

// view is the part of a report about one population.
type view struct {
	*report
	outliers int
	lines    []*line
	suffix   string // suffix of the figures' names; "" for the first population
}

// views returns a view of each population, in the report's order.
func (r *report) views() []view {
	var out []view
	for _, l := range r.Runs {
		if n := len(out); n > 0 && out[n-1].outliers == l.Outliers {
			out[n-1].lines = append(out[n-1].lines, l)
			continue
		}
		v := view{report: r, outliers: l.Outliers, lines: []*line{l}}
		if len(out) > 0 {
			v.suffix = fmt.Sprintf("-outliers%d", l.Outliers)
		}
		out = append(out, v)
	}
	return out
}

// title returns a figure's title with the population added.
func (v view) title(text string) string { return text + " (" + populationName(v.outliers) + ")" }

// theirs reports whether a line shows plain Nomad or Slurm.
func (l *line) theirs() bool { return !strings.HasPrefix(l.Scheduler, "pal-") }

func (l *line) slurm() bool { return strings.HasPrefix(l.Scheduler, "slurm") }

func (l *line) title() string {
	if l.Preemption {
		return l.Scheduler + ", preemption"
	}
	return l.Scheduler
}

// colours returns the lines' colours: our colours for the placer, baseline colours for plain Nomad
// and Slurm.
func (v view) colours() []int {
	out := make([]int, len(v.lines))
	theirs, ours := 0, plot.Ours
	for i, l := range v.lines {
		if l.theirs() {
			out[i] = theirs % plot.Ours
			theirs++
		} else {
			out[i] = plot.Ours + (ours-plot.Ours)%(plot.Colours-plot.Ours)
			ours++
		}
	}
	return out
}

// bars draws a figure with one bar per line. The parameter each returns one value per repetition;
// each bar also shows the range of these values.
func (v view) bars(name, title, label string, value func(*line) float64, each func(*replay.Result, replay.Summary) float64) plot.Bars {
	b := plot.Bars{Name: name + v.suffix, Title: v.title(title), Label: label}
	colours := v.colours()
	for i, l := range v.lines {
		bar := plot.Bar{Name: l.title(), Colour: colours[i], Value: value(l)}
		if vs := l.each(each); len(vs) > 1 {
			bar.Low, bar.High = slices.Min(vs), slices.Max(vs)
		}
		if l.Finished < float64(v.Jobs) {
			bar.Note = fmt.Sprintf("(%.4g of %d finished)", l.Finished, v.Jobs)
		}
		b.Bars = append(b.Bars, bar)
	}
	return b
}

func (v view) avgJCT() plot.Figure {
	b := v.bars("replay-avg-jct", "Average job completion time", "compressed seconds; line: range of the repetitions",
		func(l *line) float64 { return l.AvgJCT }, avgJCT)
	for i, l := range v.lines {
		b.Bars[i].Beside = l.SimAvgJCT
		if l.SimAvgJCT > 0 {
			b.Beside = "the simulator's result for the same run"
		}
	}
	return b.Figure()
}

func (v view) makespan() plot.Figure {
	return v.bars("replay-makespan", "Makespan: first submission to last finish", "compressed seconds; line: range of the repetitions",
		func(l *line) float64 { return l.Makespan }, func(_ *replay.Result, s replay.Summary) float64 { return s.Makespan.Seconds() }).Figure()
}

func (v view) useful() plot.Figure {
	return v.bars("replay-useful", "Utilization by useful work until the last finish", "% of GPU time; line: range of the repetitions",
		func(l *line) float64 { return 100 * l.Useful }, func(_ *replay.Result, s replay.Summary) float64 { return 100 * s.Useful }).Figure()
}

// jctDistribution draws the distribution of JCTs, over all repetitions together. With unfinished
// jobs, a curve stays below 100 %.
func (v view) jctDistribution() plot.Figure {
	f := plot.Lines{Name: "replay-jct" + v.suffix, Title: v.title("Jobs finished within a time after their submission"), Steps: true,
		X: plot.Axis{Label: "job completion time, compressed seconds", Log: true}, Y: plot.Axis{Label: "% of all jobs", Ticks: []float64{0, 20, 40, 60, 80, 100}}}
	colours := v.colours()
	for i, l := range v.lines {
		var jcts []float64
		jobs := 0
		for _, raw := range l.Raw {
			jobs += len(raw.Jobs)
			for _, j := range raw.Jobs {
				if j.JCT() > 0 {
					jcts = append(jcts, j.JCT().Seconds())
				}
			}
		}
		f.Series = append(f.Series, plot.Series{Name: l.title(), Colour: colours[i], Dashed: l.theirs(), Points: plot.Distribution(jcts, jobs)})
	}
	return f.Figure()
}

// queueing returns the median time to the start by gang size, over all repetitions.
func (l *line) queueing() map[int]float64 {
	all := map[int][]float64{}
	for _, raw := range l.Raw {
		for size, ds := range raw.Queueing() {
			for _, d := range ds {
				all[size] = append(all[size], d.Seconds())
			}
		}
	}
	out := map[int]float64{}
	for size, xs := range all {
		out[size] = replay.Median(xs)
	}
	return out
}

// sizes returns the jobs' numbers of GPUs in ascending order.
func (v view) sizes() []int {
	var out []int
	for _, l := range v.lines {
		for size := range l.queueing() {
			out = append(out, size)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (v view) queueingPlot() plot.Figure {
	f := plot.Lines{Name: "replay-queueing" + v.suffix, Title: v.title("Queueing by gang size: from submission until all ranks run"), Marks: true,
		X: plot.Axis{Label: "GPUs of the gang", Log: true}, Y: plot.Axis{Label: "median, compressed seconds", Log: true}}
	sizes, colours := v.sizes(), v.colours()
	for _, size := range sizes {
		f.X.Ticks = append(f.X.Ticks, float64(size))
	}
	for i, l := range v.lines {
		s, q := plot.Series{Name: l.title(), Colour: colours[i], Dashed: l.theirs()}, l.queueing()
		for _, size := range sizes {
			if v, ok := q[size]; ok {
				s.Points = append(s.Points, plot.Point{X: float64(size), Y: v})
			}
		}
		f.Series = append(f.Series, s)
	}
	return f.Figure()
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(10 * time.Millisecond).String()
}
