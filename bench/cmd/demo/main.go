// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command demo is `make demo`. It runs one mix of jobs on a real Nomad cluster with emulated GPUs,
// first under plain Nomad, then under the placer, and prints the results side by side.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/command"
	"github.com/nomad-pal/nomad-pal/bench/paldata"
	"github.com/nomad-pal/nomad-pal/bench/replay"
	"github.com/nomad-pal/nomad-pal/bench/workload"
	"github.com/nomad-pal/nomad-pal/pal"
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
	flag.DurationVar(&o.bound, "bound", 60*time.Second, "time limit of the run under plain Nomad; the placer's run may take twice as long")
	flag.Parse()
	command.Main("demo", func(ctx context.Context) error { return demo(ctx, o) })
}

const gpusPerNode = 4

// others is the number of nodes with GPUs of the second model.
func (o options) others() int { return max(1, o.Nodes/5) }

// widest is the size of the widest gang. One node of the first model stays free, so the gang never
// needs the outlier.
func (o options) widest() int { return (o.Nodes - o.others() - 1) * gpusPerNode }

func demo(ctx context.Context, o options) (err error) {
	if o.Nodes < 4 {
		return fmt.Errorf("-nodes %d: at least 4", o.Nodes)
	}
	gpus, source, err := replay.DrawTwoModels(o.Nodes-o.others(), o.others(), gpusPerNode, o.outliers, o.Seed)
	if err != nil {
		return err
	}
	jobs, err := drawJobs(o)
	if err != nil {
		return err
	}
	s := &stage{os.Stdout, gpus, time.Now()}
	s.introduce(source, o, jobs)
	bed, err := replay.Start(ctx, replay.Setup{
		Nomad: o.Nomad, Bin: o.Bin, GPUs: gpus, Penalty: penalty, Restart: time.Second,
		GiveUp: 20 * time.Second, Progress: s.progress,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	plain, err := bed.Run(ctx, replay.Mode{Name: "plain Nomad", Algorithm: "binpack"}, jobs, o.bound)
	if err != nil {
		return err
	}
	placed, err := bed.Run(ctx, replay.Mode{Name: "nomad-pal", Algorithm: "binpack", Placer: rules().HCL(), Explain: worthExplaining(jobs)}, jobs, 2*o.bound)
	if err != nil {
		return err
	}
	s.compare(plain, placed)
	fmt.Fprintf(s.out, "\n$ nomad-pal explain %s\n%s\n", worthExplaining(jobs), placed.Explanation)
	if o.JSON != "" {
		if err := command.WriteJSON(o.JSON, map[string]any{"seed": o.Seed, "nodes": o.Nodes, "runs": []*replay.Result{plain, placed}}); err != nil {
			return err
		}
	}
	if err := s.verify(placed); err != nil {
		return fmt.Errorf("%w\nthe last lines of the placer's log:\n%s", err, bed.Placers()[0].LogTail(30))
	}
	return nil
}

// worthExplaining returns the job whose explanation the demo prints: a job that is sensitive to
// slow GPUs and fits both on one node and on several.
func worthExplaining(jobs []replay.Job) string {
	for _, j := range jobs {
		if j.Class == pal.ClassA && j.GPUs() == gpusPerNode {
			return j.ID
		}
	}
	return jobs[0].ID
}

// penalty is PAL's locality penalty across nodes.
const penalty = 1.7

// work is the divisor of the jobs' work and the queue's time constants, so that the demo takes
// minutes.
const work = 100

func rules() replay.Rules { return replay.Rules{Penalty: penalty, Compress: work} }

// drawJobs draws a mix with the sizes, models and arrivals of the Sia-Philly workloads or, if
// PAL_DATA is set, takes the first jobs of workload 1. The jobs' work is limited, because work in
// the trace spans four orders of magnitude.
func drawJobs(o options) ([]replay.Job, error) {
	t := trace.SiaPhilly(o.Seed, trace.Shape{Jobs: o.jobs, MaxGPUs: o.widest()})
	if dir := paldata.Dir(); dir != "" {
		var err error
		if t, err = workload.ReadSia(filepath.Join(dir, "sia_workload_1.csv")); err != nil {
			return nil, err
		}
		t.Jobs = t.Jobs[:min(o.jobs, len(t.Jobs))]
	}
	return replay.FromTrace(t, replay.Compression{
		Arrivals: 200, Work: work, Shortest: 3 * time.Second, Longest: 9 * time.Second,
		Iteration: 250 * time.Millisecond, MaxGPUs: o.widest(), GPUsPerNode: gpusPerNode, OneGPUUpTo: 4,
	}), nil
}

var errMismatch = errors.New("a gang ran on GPUs that explain does not show")
