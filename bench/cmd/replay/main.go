// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command replay is `make replay`. It runs workloads on real Nomad clusters of 16 clients × 4
// emulated GPUs under different schedulers, and on Slurm clusters with the same GPUs. Repetition r
// draws jobs and GPUs from seed + r, the same for every scheduler, so runs of one repetition can be
// compared in pairs. After every run, the command writes the measurements to a JSON file. It prints
// tables and, with -html, writes a report with plots.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/command"
	"github.com/nomad-pal/nomad-pal/bench/replay"
	"github.com/nomad-pal/nomad-pal/bench/workload"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

type options struct {
	command.Results
	nomad, bin, workload, modes, outliers string
	nodes, jobs, reps, parallel, single   int
	seed                                  uint64
	compress, overload                    float64
	resume, foresee, models               bool
	longest, bound, maxWait               time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.nomad, "nomad", "", "nomad binary")
	flag.StringVar(&o.bin, "bin", "build/bin", "folder with nomad-pal's binaries")
	flag.StringVar(&o.workload, "workload", "", "trace file in any format that simulate reads, the same in every repetition; empty: generated with the statistics of Sia-Philly")
	flag.StringVar(&o.modes, "modes", "", "comma-separated schedulers to run; empty: all")
	o.Flags("replay")
	flag.BoolVar(&o.resume, "resume", false, "continue the campaign: skip runs that the result file already contains")
	flag.BoolVar(&o.foresee, "foresee", false, "only print the simulator's forecast for these runs")
	flag.IntVar(&o.nodes, "nodes", 16, "clients, of 4 GPUs each")
	flag.BoolVar(&o.models, "models", false, "half of the nodes have GPUs of another model, and the jobs' applications differ in their speed on each model")
	flag.IntVar(&o.jobs, "jobs", 100, "number of jobs, taken from the start of the workload")
	flag.IntVar(&o.single, "single", 4, "gangs of up to this many GPUs have one rank per GPU, larger gangs one rank per node if their size allows")
	flag.StringVar(&o.outliers, "outliers", "1,0", "numbers of outlier GPUs, one for each population, separated by commas")
	flag.IntVar(&o.reps, "repetitions", 3, "runs of each scheduler on each population, each with its own seed")
	flag.IntVar(&o.parallel, "parallel", 4, "runs at a time, each on its own cluster")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of GPUs and of a generated workload in the first repetition; each further repetition adds 1")
	flag.Float64Var(&o.compress, "compress", 240, "how many times faster than the trace the jobs arrive and run")
	flag.Float64Var(&o.overload, "overload", 0, "add one hour of jobs with this many times the work that the cluster can do in an hour")
	flag.DurationVar(&o.maxWait, "max-wait", queue.DefaultMaxWait, "max_wait of the placer's queue, before compression")
	flag.DurationVar(&o.longest, "longest", 20*time.Second, "longest work of a job, after compression; longer work is reduced to it")
	flag.DurationVar(&o.bound, "bound", 10*time.Minute, "time limit of a run")
	flag.Parse()
	command.Main("replay", func(ctx context.Context) error { return run(ctx, o) })
}

func run(ctx context.Context, o options) error {
	if o.From != "" {
		r, err := readReport(o.From)
		if err != nil {
			return err
		}
		return o.Show(r.Page())
	}
	if o.foresee {
		return o.foreseeAll(os.Stdout)
	}
	c, err := o.campaign()
	if err != nil {
		return err
	}
	if err := c.run(ctx); err != nil {
		return err
	}
	return o.Show(c.report.Page())
}

// populations returns the numbers of outliers to run with.
func (o options) populations() ([]int, error) {
	var out []int
	for _, text := range strings.Split(o.outliers, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 0 || n > 4*o.nodes {
			return nil, fmt.Errorf("-outliers: %q is not a number of GPUs from 0 to %d", text, 4*o.nodes)
		}
		out = append(out, n)
	}
	return out, nil
}

// workloadJobs returns the jobs of a repetition.
func (o options) workloadJobs(seed uint64) ([]replay.Job, error) {
	t := trace.SiaPhilly(seed, trace.Shape{Jobs: o.jobs})
	if o.models {
		t = workload.Mixed(seed, trace.Shape{Jobs: o.jobs, MaxGPUs: 2 * o.nodes}, modelNames(), gavelApps())
	}
	if o.workload != "" {
		var err error
		if t, err = trace.ReadFile(o.workload); err != nil {
			return nil, err
		}
	}
	t.Jobs = t.Jobs[:min(o.jobs, len(t.Jobs))]
	if len(t.Jobs) == 0 {
		return nil, fmt.Errorf("workload %q has no jobs", t.Name)
	}
	c := replay.Compression{
		Arrivals: o.compress, Work: o.compress, Shortest: time.Second, Longest: o.longest,
		Iteration: iteration, MaxGPUs: o.nodes * 4, GPUsPerNode: 4, OneGPUUpTo: o.single,
	}
	jobs := replay.FromTrace(t, c)
	for i := range jobs {
		if o.models {
			jobs[i].App, _, _ = strings.Cut(jobs[i].Model, "×")
		}
	}
	if o.overload > 0 {
		more := trace.SiaPhilly(seed+overloadSeed, trace.Shape{Jobs: overloadJobs})
		jobs = replay.Overload(jobs, replay.FromTrace(more, c), o.compressed(time.Hour), time.Duration(o.overload*float64(4*o.nodes)*float64(o.compressed(time.Hour))))
	}
	return jobs, nil
}

// overloadJobs is the number of jobs from which the jobs of the overloaded hour are chosen.
// overloadSeed is added to the seed of these jobs.
const overloadSeed, overloadJobs = 1000, 10_000
