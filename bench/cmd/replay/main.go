// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command replay is `make replay`: workloads on real Nomad clusters of 16
// clients × 4 emulated GPUs under different schedulers, and on Slurm clusters of the
// same GPUs. Repetition r takes jobs
// and GPUs of seed + r, the same for every scheduler, so that runs of one
// repetition are pairs. It writes what it measured to a JSON file after every
// run and prints tables; -html writes a report with plots.
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
	flag.StringVar(&o.bin, "bin", "build/bin", "folder of our binaries")
	flag.StringVar(&o.workload, "workload", "", "trace file in any format that simulate reads, the same in every repetition; empty: generated with the statistics of Sia-Philly")
	flag.StringVar(&o.modes, "modes", "", "comma-separated schedulers to run; empty: all")
	o.Flags("replay")
	flag.BoolVar(&o.resume, "resume", false, "go on with the result file: runs that it has are not run again")
	flag.BoolVar(&o.foresee, "foresee", false, "print what the simulator says of these runs, without any")
	flag.IntVar(&o.nodes, "nodes", 16, "clients, of 4 GPUs each")
	flag.BoolVar(&o.models, "models", false, "half of the nodes have GPUs of another model, and jobs are of applications that differ in how fast they run on each")
	flag.IntVar(&o.jobs, "jobs", 100, "jobs: the first of the workload")
	flag.IntVar(&o.single, "single", 4, "gangs of up to this many GPUs have ranks of one GPU, wider ones whole nodes if their size allows")
	flag.StringVar(&o.outliers, "outliers", "1,0", "populations: comma-separated numbers of GPUs that are outliers")
	flag.IntVar(&o.reps, "repetitions", 3, "runs of each scheduler on each population, each with a seed of its own")
	flag.IntVar(&o.parallel, "parallel", 4, "runs at a time, each on a cluster of its own")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of GPUs and of a generated workload in the first repetition; one more in each further one")
	flag.Float64Var(&o.compress, "compress", 240, "how many times faster than the trace")
	flag.Float64Var(&o.overload, "overload", 0, "add an hour of jobs with this many times the work that the cluster does in an hour")
	flag.DurationVar(&o.maxWait, "max-wait", queue.DefaultMaxWait, "max_wait of the placer's queue, before compression")
	flag.DurationVar(&o.longest, "longest", 20*time.Second, "longest work of a job, after compression; longer ones are cut")
	flag.DurationVar(&o.bound, "bound", 10*time.Minute, "time after which a run is ended, finished or not")
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

// populations are the numbers of outliers to run with.
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

// workloadJobs are those of a repetition.
func (o options) workloadJobs(seed uint64) ([]replay.Job, error) {
	t := trace.SiaPhilly(seed, trace.Shape{Jobs: o.jobs})
	if o.models {
		t = trace.Mixed(seed, trace.Shape{Jobs: o.jobs, MaxGPUs: 2 * o.nodes}, modelNames(), gavelApps())
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

// The jobs of an overloaded hour are drawn from this number, with a seed of their own.
const overloadSeed, overloadJobs = 1000, 10_000
