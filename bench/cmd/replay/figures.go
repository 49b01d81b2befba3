// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/plot"
	"github.com/nomad-pal/nomad-pal/bench/replay"
)

// readReport reads a result file and computes its figures anew.
func readReport(path string) (*report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read results %q: %w", path, err)
	}
	if len(r.Command) > 0 {
		r.Command = replay.Invocation("replay", r.Command[1:])
	}
	for _, l := range r.Runs {
		if len(l.Raw) == 0 {
			return nil, fmt.Errorf("read results %q: scheduler %q has no raw results", path, l.Scheduler)
		}
		l.gpus = r.GPUs
		l.summarise()
	}
	return r, nil
}

func (l *line) plain() bool { return l.Raw[0].Predicted == nil }

func (l *line) title() string {
	if l.Preemption {
		return l.Scheduler + ", preemption"
	}
	return l.Scheduler
}

// colours gives plain Nomad's lines the colours of what is compared with and the
// placer's those of ours.
func (r *report) colours() []int {
	out := make([]int, len(r.Runs))
	theirs, ours := 0, plot.Ours
	for i, l := range r.Runs {
		if l.plain() {
			out[i] = theirs % plot.Ours
			theirs++
		} else {
			out[i] = plot.Ours + (ours-plot.Ours)%(plot.Colours-plot.Ours)
			ours++
		}
	}
	return out
}

// bars draws one figure of every line; spread gives the ends of its range.
func (r *report) bars(name, title, label string, value func(*line) float64, each func(*replay.Result, replay.Summary) float64) plot.Bars {
	b := plot.Bars{Name: name, Title: title, Label: label}
	colours := r.colours()
	for i, l := range r.Runs {
		bar := plot.Bar{Name: l.title(), Colour: colours[i], Value: value(l)}
		if vs := l.each(each); len(vs) > 1 {
			bar.Low, bar.High = slices.Min(vs), slices.Max(vs)
		}
		if l.Finished < float64(r.Jobs) {
			bar.Note = fmt.Sprintf("(%v of %d finished)", l.Finished, r.Jobs)
		}
		b.Bars = append(b.Bars, bar)
	}
	return b
}

func (r *report) avgJCT() plot.Figure {
	b := r.bars("replay-avg-jct", "Average job completion time of the finished jobs", "compressed seconds; line: least to most of the repetitions",
		func(l *line) float64 { return l.AvgJCT }, func(_ *replay.Result, s replay.Summary) float64 { return s.AvgJCT.Seconds() })
	for i, l := range r.Runs {
		b.Bars[i].Beside = l.SimAvgJCT
		if l.SimAvgJCT > 0 {
			b.Beside = "what the simulator says of the same run"
		}
	}
	return b.Figure()
}

func (r *report) makespan() plot.Figure {
	return r.bars("replay-makespan", "Makespan: first submission to last finish", "compressed seconds; line: least to most of the repetitions",
		func(l *line) float64 { return l.Makespan }, func(_ *replay.Result, s replay.Summary) float64 { return s.Makespan.Seconds() }).Figure()
}

func (r *report) useful() plot.Figure {
	return r.bars("replay-useful", "Utilisation by useful work until the last finish", "% of GPU time; line: least to most of the repetitions",
		func(l *line) float64 { return 100 * l.Useful }, func(_ *replay.Result, s replay.Summary) float64 { return 100 * s.Useful }).Figure()
}

// jctDistribution pools the repetitions; what did not finish is missing above.
func (r *report) jctDistribution() plot.Figure {
	f := plot.Lines{Name: "replay-jct", Title: "Jobs finished within a time after their submission", Steps: true,
		X: plot.Axis{Label: "job completion time, compressed seconds", Log: true}, Y: plot.Axis{Label: "% of all jobs", Ticks: []float64{0, 20, 40, 60, 80, 100}}}
	colours := r.colours()
	for i, l := range r.Runs {
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
		f.Series = append(f.Series, plot.Series{Name: l.title(), Colour: colours[i], Dashed: l.plain(), Points: plot.Distribution(jcts, jobs)})
	}
	return f.Figure()
}

// queueing is the median time to the start by gang size, over all repetitions.
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

// sizes are the numbers of GPUs of the jobs, ascending.
func (r *report) sizes() []int {
	var out []int
	for _, l := range r.Runs {
		for size := range l.queueing() {
			out = append(out, size)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (r *report) queueingPlot() plot.Figure {
	f := plot.Lines{Name: "replay-queueing", Title: "Queueing by gang size: submission to the moment when all ranks are there", Marks: true,
		X: plot.Axis{Label: "GPUs of the gang", Log: true}, Y: plot.Axis{Label: "median, compressed seconds", Log: true}}
	sizes, colours := r.sizes(), r.colours()
	for _, size := range sizes {
		f.X.Ticks = append(f.X.Ticks, float64(size))
	}
	for i, l := range r.Runs {
		s, q := plot.Series{Name: l.title(), Colour: colours[i], Dashed: l.plain()}, l.queueing()
		for _, size := range sizes {
			if v, ok := q[size]; ok {
				s.Points = append(s.Points, plot.Point{X: float64(size), Y: v})
			}
		}
		f.Series = append(f.Series, s)
	}
	return f.Figure()
}

func (r *report) figures() []plot.Figure {
	return []plot.Figure{r.avgJCT(), r.jctDistribution(), r.makespan(), r.useful(), r.queueingPlot()}
}

// starts are the times that jobs took to start for which there were GPUs, in
// seconds, ascending.
func (l *line) starts() []float64 {
	var out []float64
	for _, raw := range l.Raw {
		for _, d := range raw.Starts(l.gpus) {
			out = append(out, d.Seconds())
		}
	}
	slices.Sort(out)
	return out
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(10 * time.Millisecond).String()
}
