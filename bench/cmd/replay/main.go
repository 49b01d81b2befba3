// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command replay is `make replay`: one workload on a real Nomad cluster of 16
// clients × 4 emulated GPUs, again and again under different schedulers, on
// the same GPUs and with the same arrivals. It writes what it measured to a
// JSON file and prints a table; -html writes a report with plots.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/command"
	"github.com/nomad-pal/nomad-pal/bench/paldata"
	"github.com/nomad-pal/nomad-pal/bench/replay"
	"github.com/nomad-pal/nomad-pal/bench/trace"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/population"
	"github.com/nomad-pal/nomad-pal/pal/queue"
)

type options struct {
	nomad, bin, workload, modes, json string
	from, html, svg                   string
	nodes, jobs, outliers, reps       int
	seed                              uint64
	compress                          float64
	predict                           bool
	longest, bound                    time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.nomad, "nomad", "", "nomad binary")
	flag.StringVar(&o.bin, "bin", "build/bin", "folder of our binaries")
	flag.StringVar(&o.workload, "workload", "", "trace file in any format that simulate reads; empty: generated with the statistics of Sia-Philly")
	flag.StringVar(&o.modes, "modes", "", "comma-separated schedulers to run; empty: all")
	flag.StringVar(&o.json, "json", "bench/results/replay.json", "result file")
	flag.StringVar(&o.from, "from", "", "result file of an earlier run to report on, without a new run; it is written anew only where -json names it")
	flag.BoolVar(&o.predict, "predict", false, "with -from: simulate the runs anew (with the PAL_DATA that the run had, or none)")
	flag.StringVar(&o.html, "html", "", "report with plots to write, one page that opens offline")
	flag.StringVar(&o.svg, "svg", "", "folder for the plots as SVG files")
	flag.IntVar(&o.nodes, "nodes", 16, "clients, of 4 GPUs each")
	flag.IntVar(&o.jobs, "jobs", 60, "jobs: the first of the workload")
	flag.IntVar(&o.outliers, "outliers", 1, "GPUs that are outliers")
	flag.IntVar(&o.reps, "repetitions", 3, "runs of each scheduler")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of GPUs and of a generated workload")
	flag.Float64Var(&o.compress, "compress", 120, "how many times faster than the trace")
	flag.DurationVar(&o.longest, "longest", 90*time.Second, "longest work of a job, after compression; longer ones are cut")
	flag.DurationVar(&o.bound, "bound", 15*time.Minute, "time after which a run is ended, finished or not")
	flag.Parse()
	command.Main("replay", func(ctx context.Context) error { return run(ctx, o) })
}

// scheduler is one line of the comparison.
type scheduler struct {
	name      string
	algorithm string
	rules     *replay.Rules // of the placer; nil is plain Nomad
	giveUp    time.Duration // uncompressed: how long a rank waits for its gang
	preempt   bool          // jobs allow it
}

// penalty is PAL's locality penalty across nodes.
const penalty = 1.7

// restart is what loading a checkpoint costs, uncompressed.
const restart = 60 * time.Second

// schedulers are what is compared. Under the placer a gang comes together or
// does not start; its ranks wait as long as those of plain Nomad's longer give-up.
func (o options) schedulers() []scheduler {
	const patient = 30 * time.Minute
	rules := func(placement pal.PolicyName, order queue.Order) *replay.Rules {
		return &replay.Rules{Penalty: penalty, Placement: placement, Order: order, Compress: o.compress}
	}
	return []scheduler{
		{name: "nomad-binpack", algorithm: "binpack", giveUp: 24 * time.Hour},
		{name: "nomad-binpack-retry10m", algorithm: "binpack", giveUp: 10 * time.Minute},
		{name: "nomad-binpack-retry30m", algorithm: "binpack", giveUp: patient},
		{name: "nomad-spread-retry30m", algorithm: "spread", giveUp: patient},
		{name: "pal-packed-fifo", algorithm: "binpack", giveUp: patient, rules: rules(pal.Packed, queue.FIFO)},
		{name: "pal-pal-fifo", algorithm: "binpack", giveUp: patient, rules: rules(pal.PAL, queue.FIFO)},
		{name: "pal-default", algorithm: "binpack", giveUp: patient, rules: rules("", "")},
		{name: "pal-default", algorithm: "binpack", giveUp: patient, rules: rules("", ""), preempt: true},
	}
}

func (o options) chosen() ([]scheduler, error) {
	all := o.schedulers()
	if o.modes == "" {
		return all, nil
	}
	var out []scheduler
	for _, name := range strings.Split(o.modes, ",") {
		n := len(out)
		for _, s := range all {
			if s.name == name {
				out = append(out, s)
			}
		}
		if len(out) == n {
			return nil, fmt.Errorf("-modes: no scheduler %q", name)
		}
	}
	return out, nil
}

func run(ctx context.Context, o options) error {
	if o.from != "" {
		return o.reshow()
	}
	chosen, err := o.chosen()
	if err != nil {
		return err
	}
	gpus, err := o.gpus()
	if err != nil {
		return err
	}
	jobs, err := o.workloadJobs()
	if err != nil {
		return err
	}
	out := newReport(o, gpus, jobs)
	for rep := range o.reps {
		for _, s := range chosen {
			r, err := o.once(ctx, s, gpus, jobs, fmt.Sprintf("%s, run %d of %d", s.name, rep+1, o.reps))
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			out.add(s, r)
			if err := out.write(o.json); err != nil {
				return err
			}
		}
	}
	return o.show(out)
}

// once runs the workload on a cluster of its own, so that no run inherits
// anything from the one before.
func (o options) once(ctx context.Context, s scheduler, gpus *replay.GPUs, jobs []replay.Job, title string) (r *replay.Result, err error) {
	fmt.Fprintln(os.Stderr, title)
	b, err := replay.Start(ctx, replay.Setup{
		Nomad: o.nomad, Bin: o.bin, GPUs: gpus, Penalty: penalty,
		Restart: o.compressed(restart), GiveUp: o.compressed(s.giveUp),
		Progress: func(line string) { fmt.Fprintln(os.Stderr, " ", line) },
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := b.Close(); err == nil {
			err = e
		}
	}()
	jobs = slices.Clone(jobs)
	for i := range jobs {
		jobs[i].Preempt = s.preempt
	}
	m := replay.Mode{Name: s.name, Algorithm: s.algorithm}
	if s.rules == nil {
		return b.Run(ctx, m, jobs, o.bound)
	}
	m.Placer = s.rules.HCL()
	r, err = b.Run(ctx, m, jobs, o.bound)
	if err != nil {
		return nil, err
	}
	return r, o.predictRun(s, gpus, jobs, r)
}

func (o options) predictRun(s scheduler, gpus *replay.GPUs, jobs []replay.Job, r *replay.Result) error {
	p, err := replay.Predict(jobs, gpus, penalty, s.rules.Queue(), o.compressed(restart), r.Overhead())
	if err != nil {
		return err
	}
	r.Predicted = &p
	return nil
}

func (o options) compressed(d time.Duration) time.Duration {
	return time.Duration(float64(d) / o.compress)
}

func (o options) gpus() (*replay.GPUs, error) {
	spec := population.Spec{Cluster: "longhorn", Nodes: o.nodes, GPUsPerNode: 4, Outliers: population.Exactly(o.outliers)}
	if dir := paldata.Dir(); dir != "" {
		var err error
		if spec.Tables, err = paldata.Tables(dir); err != nil {
			return nil, err
		}
	}
	all, err := population.Draw(spec, rand.New(rand.NewPCG(o.seed, 1)))
	if err != nil {
		return nil, err
	}
	return replay.NewGPUs(all)
}

func (o options) workloadJobs() ([]replay.Job, error) {
	t := trace.SiaPhilly(o.seed, trace.Shape{Jobs: o.jobs})
	if o.workload != "" {
		var err error
		if t, err = trace.ReadFile(o.workload); err != nil {
			return nil, err
		}
	}
	t.Jobs = t.Jobs[:min(o.jobs, len(t.Jobs))]
	return replay.FromTrace(t, replay.Compression{
		Arrivals: o.compress, Work: o.compress, Shortest: time.Second, Longest: o.longest,
		Iteration: 250 * time.Millisecond, MaxGPUs: o.nodes * 4, GPUsPerNode: 4, OneGPUUpTo: 4,
	}), nil
}
