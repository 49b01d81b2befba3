// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/replay"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim"
)

// Typical durations on a cluster that is not busy, as measured in replays.
const (
	// usualStart is the time from the moment when a gang can start until all its ranks run.
	usualStart = 75 * time.Millisecond
	// usualEnd is the time from the end of a gang until another gang can use its GPUs. Nomad's
	// clients report changes of their allocations in batches, five a second.
	usualEnd = 200 * time.Millisecond
	// usualStop is how long a gang keeps its GPUs after it was stopped for another gang.
	usualStop = 300 * time.Millisecond
)

// play simulates a run. It returns the average and geomean JCT, the makespan (0: unknown) and the
// number of jobs that never finish.
type play func(g *replay.GPUs, jobs []replay.Job, seed uint64) (f sim.Figures, never int, err error)

// foreseen is the simulator's forecast for one line. avg, geomean and makespan sum the logarithms
// of all repetitions, to compute geometric means.
type foreseen struct {
	name                   string
	avg, geomean, makespan float64
	never, runs            int
	jobs                   play
}

// foreseeAll prints the simulator's forecast for the campaign's lines and for variants of the
// default queue, and a lower bound of the makespan.
func (o options) foreseeAll(out io.Writer) error {
	populations, err := o.populations()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POPULATION\tLINE\tAVG JCT\tGEOMEAN\tMAKESPAN\tNEVER FINISH")
	for _, n := range populations {
		lines := o.foreseeable()
		for rep := range o.reps {
			if err := o.foreseeRun(lines, n, o.seed+uint64(rep)); err != nil {
				return err
			}
		}
		for _, f := range lines {
			mean := func(sum float64) string {
				if sum == 0 {
					return "–"
				}
				return fmt.Sprintf("%.2f", math.Exp(sum/float64(f.runs)))
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\n", populationName(n), f.name, mean(f.avg), mean(f.geomean), mean(f.makespan), f.never)
		}
	}
	return w.Flush()
}

func (o options) foreseeRun(lines []*foreseen, outliers int, seed uint64) error {
	gpus, _, err := replay.DrawGPUs(o.nodes, 4, outliers, seed)
	if err != nil {
		return err
	}
	jobs, err := o.workloadJobs(seed)
	if err != nil {
		return err
	}
	for _, f := range lines {
		figures, never, err := f.jobs(gpus, slices.Clone(jobs), seed)
		if err != nil {
			return fmt.Errorf("%s, seed %d: %w", f.name, seed, err)
		}
		f.runs++
		f.never += never
		for _, v := range []struct {
			to   *float64
			from float64
		}{{&f.avg, figures.AvgJCT}, {&f.geomean, figures.GeoJCT}, {&f.makespan, figures.Makespan}} {
			if v.from > 0 {
				*v.to += math.Log(v.from)
			}
		}
	}
	return nil
}

// foreseeable returns the forecasts to compute: the lower bound, the campaign's lines and the
// variants.
func (o options) foreseeable() []*foreseen {
	all := []*foreseen{{name: "floor", jobs: func(g *replay.GPUs, jobs []replay.Job, _ uint64) (sim.Figures, int, error) {
		return sim.Figures{Makespan: g.Floor(jobs, penalty, usualStart+usualEnd).Seconds()}, 0, nil
	}}}
	for _, s := range o.schedulers() {
		if s.limit != nil {
			continue // the simulator has no Slurm; its policies easy and easy-users are the most similar
		}
		if s.rules == nil {
			all = append(all, &foreseen{name: s.name, jobs: o.plainly(s)})
			continue
		}
		name := s.name
		if s.preempt {
			name += ", preemption"
		}
		all = append(all, &foreseen{name: name, jobs: o.under(s.rules.Queue(), s.preempt)})
	}
	for _, v := range []struct {
		name   string
		change func(*queue.Options)
	}{
		{"no outlier avoided", func(q *queue.Options) { q.OutlierThreshold = 0 }},
		{"no locality wait", func(q *queue.Options) { q.LocalityWait = false }},
		{"no locality wait, no outlier avoided", func(q *queue.Options) { q.LocalityWait, q.OutlierThreshold = false, 0 }},
		{"packed, no locality wait, no outlier avoided", func(q *queue.Options) {
			q.LocalityWait, q.OutlierThreshold, q.Placement = false, 0, pal.Policy{Name: pal.Packed}
		}},
		{"waits 1 h at most", func(q *queue.Options) { q.MaxWait = o.compressed(time.Hour) }},
		{"waits 2 h at most", func(q *queue.Options) { q.MaxWait = o.compressed(2 * time.Hour) }},
	} {
		for _, preempt := range []bool{false, true} {
			q := replay.Rules{Penalty: penalty, Compress: o.compress}.Queue()
			v.change(&q)
			name := "pal-default, " + v.name
			if preempt {
				name += ", preemption"
			}
			all = append(all, &foreseen{name: name, jobs: o.under(q, preempt)})
		}
	}
	return all
}

func (o options) under(q queue.Options, preempt bool) play {
	return func(g *replay.GPUs, jobs []replay.Job, _ uint64) (f sim.Figures, never int, err error) {
		for i := range jobs {
			jobs[i].Preempt = preempt
		}
		p, err := replay.Predict(jobs, g, penalty, q, o.timing())
		for _, j := range jobs {
			f.GeoJCT += math.Log(p.JCTS[j.ID]) / float64(len(jobs))
		}
		f.AvgJCT, f.GeoJCT, f.Makespan = p.AvgJCTS, math.Exp(f.GeoJCT), p.MakespanS
		return f, 0, err
	}
}

func (o options) plainly(s scheduler) play {
	giveUp := o.compressed(s.giveUp)
	if s.giveUp == never {
		giveUp = 0
	}
	return func(g *replay.GPUs, jobs []replay.Job, seed uint64) (sim.Figures, int, error) {
		out, err := replay.PredictPlain(jobs, g, penalty, s.algorithm == "spread", giveUp, usualStart+usualEnd, seed)
		done := slices.DeleteFunc(out.Jobs, func(j sim.JobResult) bool { return j.Finish < 0 })
		return sim.FiguresOf(done), out.Stuck, err
	}
}
