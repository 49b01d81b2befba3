// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command demo is `make demo`. It runs one mix of jobs on a real Nomad cluster with emulated GPUs,
// first under plain Nomad, then under nomad-pal, and prints the results side by side.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/command"
	"github.com/nomad-pal/nomad-pal/bench/paldata"
	"github.com/nomad-pal/nomad-pal/bench/replay"
	"github.com/nomad-pal/nomad-pal/bench/workload"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

type options struct {
	command.Options
	jobs, outliers int
	bound          time.Duration
}

func main() {
	var o options
	o.Flags(16, "", " (at least 4); one in five has GPUs of a second model", "GPUs and jobs")
	flag.IntVar(&o.jobs, "jobs", 24, "jobs")
	flag.IntVar(&o.outliers, "outliers", 1, "number of outlier GPUs; their speeds are drawn from the outliers measured on TACC Longhorn")
	flag.DurationVar(&o.bound, "bound", 45*time.Second, "time limit of the run under plain Nomad; nomad-pal's run may take twice as long")
	flag.Parse()
	command.Main("demo", func(ctx context.Context) error { return demo(ctx, o) })
}

const gpusPerNode = 4

// others is the number of nodes with GPUs of the second model.
func (o options) others() int { return max(1, o.Nodes/5) }

// widest is the size of the widest gang. One node of the first model stays free, so the gang never
// needs the outlier.
func (o options) widest() int { return (o.Nodes - o.others() - 1) * gpusPerNode }

func demo(ctx context.Context, o options) error {
	if o.Nodes < 4 {
		return fmt.Errorf("-nodes %d: at least 4", o.Nodes)
	}
	gpus, source, err := o.draw()
	if err != nil {
		return err
	}
	jobs, err := o.drawJobs()
	if err != nil {
		return err
	}
	s := &stage{os.Stdout, gpus, time.Now()}
	s.introduce(source, o, jobs)
	plain, placed, err := run(ctx, o, s, jobs)
	if err != nil {
		return err
	}
	if o.JSON != "" {
		if err := command.WriteJSON(o.JSON, map[string]any{"seed": o.Seed, "nodes": o.Nodes, "runs": []*replay.Result{plain, placed}}); err != nil {
			return err
		}
	}
	return s.compare(plain, placed)
}

// run runs the jobs on a cluster of their own, under plain Nomad and then under nomad-pal.
func run(ctx context.Context, o options, s *stage, jobs []replay.Job) (plain, placed *replay.Result, err error) {
	bed, err := replay.Start(ctx, replay.Setup{
		Nomad: o.Nomad, Bin: o.Bin, GPUs: s.gpus, Penalty: penalty, Restart: time.Second,
		GiveUp: giveUp, Progress: s.progress,
	})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	if plain, err = bed.Run(ctx, replay.Mode{Name: "plain Nomad", Algorithm: "binpack"}, jobs, o.bound); err != nil {
		return nil, nil, err
	}
	if placed, err = bed.Run(ctx, replay.Mode{Name: "nomad-pal", Algorithm: "binpack", Placer: rules().HCL()}, jobs, 2*o.bound); err != nil {
		return nil, nil, err
	}
	if err := verify(placed); err != nil {
		return nil, nil, fmt.Errorf("%w\nthe last lines of the placer's log:\n%s", err, bed.Placers()[0].LogTail(30))
	}
	return plain, placed, nil
}

// penalty is PAL's locality penalty across nodes.
const penalty = 1.7

// giveUp is how long a rank waits for the other ranks of its gang.
const giveUp = 20 * time.Second

// work is the divisor of the jobs' work and the queue's time constants, so that the demo takes
// minutes.
const work = 100

func rules() replay.Rules { return replay.Rules{Penalty: penalty, Compress: work} }

func (o options) draw() (g *replay.GPUs, source string, err error) {
	return replay.DrawTwoModels(o.Nodes-o.others(), o.others(), gpusPerNode, o.outliers, o.Seed)
}

// drawJobs draws a mix with the sizes, models and arrivals of the Sia-Philly workloads or, if
// PAL_DATA is set, takes the first jobs of workload 1. The jobs' work is limited, because work in
// the trace spans four orders of magnitude.
func (o options) drawJobs() ([]replay.Job, error) {
	t := trace.SiaPhilly(o.Seed, trace.Shape{Jobs: o.jobs, MaxGPUs: o.widest()})
	if dir := paldata.Dir(); dir != "" {
		var err error
		if t, err = workload.ReadSia(filepath.Join(dir, "sia_workload_1.csv")); err != nil {
			return nil, err
		}
		t.Jobs = t.Jobs[:min(o.jobs, len(t.Jobs))]
	}
	return replay.FromTrace(t, replay.Compression{
		Arrivals: 250, Work: work, Shortest: 3 * time.Second, Longest: 9 * time.Second,
		Iteration: 250 * time.Millisecond, MaxGPUs: o.widest(), GPUsPerNode: gpusPerNode, OneGPUUpTo: 4,
	}), nil
}

// verify checks that each gang finished, and ran on exactly the GPUs that `nomad-pal explain`
// named.
func verify(r *replay.Result) error {
	for _, j := range r.Jobs {
		if j.FinishedAt.IsZero() {
			return fmt.Errorf("job %q did not finish under nomad-pal", j.ID)
		}
		if !slices.Equal(j.Allocated, j.Explained) || len(j.Allocated) != j.GPUs() {
			return fmt.Errorf("job %q ran on %v, but explain showed %v", j.ID, j.Allocated, j.Explained)
		}
	}
	return nil
}
