// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command soak is `make soak`. It runs compressed traffic on a real cluster under the placer's
// default configuration, for hours. Meanwhile it kills and restarts clients, kills the placer, and
// makes GPUs unhealthy and healthy again. Every check compares the placer's state with Nomad's
// allocations, and records the processes' resources. The run fails in these cases:
//
//   - Drift in two checks in a row: /v1/gpus, /v1/queue and /v1/metrics do not agree with Nomad's
//     allocations within 20 s.
//   - Two allocations hold a GPU (checked every second).
//   - Memory, threads, goroutines, open files or Nomad variables grow steadily: a line fitted to
//     the last two thirds of the values rises by more than 15 % of the mean and by more than four
//     standard errors. For the placer, these are the values of its last process: it is killed only
//     in the first half of the run.
//   - An allocation fails without a known cause (causes).
//   - A job does not finish.
//
// soak writes a JSON file and prints a summary.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/command"
	"github.com/nomad-pal/nomad-pal/bench/rank"
	"github.com/nomad-pal/nomad-pal/bench/replay"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

type options struct {
	command.Options
	queue                        int
	load                         float64
	duration, look, churn, drain time.Duration
	longest                      time.Duration
}

func main() {
	var o options
	o.Flags(8, "bench/results/soak.json", "", "GPUs, workload and disturbances")
	flag.IntVar(&o.queue, "queue", 60, "pause submitting while this many jobs are unfinished")
	flag.Float64Var(&o.load, "load", 0.8, "offered load as a share of the GPUs' capacity")
	flag.DurationVar(&o.duration, "duration", 2*time.Hour, "duration of traffic and disturbances")
	flag.DurationVar(&o.look, "look", time.Minute, "time between two checks")
	flag.DurationVar(&o.churn, "churn", 4*time.Minute, "time between two disturbances")
	flag.DurationVar(&o.drain, "drain", 10*time.Minute, "time limit for the remaining jobs after the end of traffic")
	flag.DurationVar(&o.longest, "longest", 30*time.Second, "longest work of a job; the workload is that of Sia-Philly, 120 times faster")
	flag.Parse()
	command.Main("soak", func(ctx context.Context) error { return run(ctx, o) })
}

type soak struct {
	options
	*replay.Bed
	rendezvous *rank.Rendezvous
	start      time.Time
	report     *report

	placer *cluster.Placer // guarded by whole, because disturbances replace it
	whole  sync.Mutex      // held while the placer is down
}

func say(line string) { fmt.Fprintln(os.Stderr, " ", line) }

func run(ctx context.Context, o options) (err error) {
	gpus, _, err := replay.DrawGPUs(o.Nodes, gpusPerNode, 1, o.Seed)
	if err != nil {
		return err
	}
	bed, err := replay.Start(ctx, replay.Setup{
		Nomad: o.Nomad, Bin: o.Bin, GPUs: gpus, Penalty: 1.7, Restart: 500 * time.Millisecond, GiveUp: time.Minute, Progress: say,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	meeting, err := rank.Listen(bed.GiveUp)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, meeting.Close()) }()
	s := &soak{options: o, Bed: bed, rendezvous: meeting, start: time.Now(), report: newReport(o)}
	if err := s.startPlacer(ctx); err != nil {
		return err
	}
	return errors.Join(s.all(ctx), s.placer.Stop())
}

// all runs traffic, disturbances and checks until the time is over, and then waits until the
// cluster has drained.
func (s *soak) all(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timed, stop := context.WithTimeoutCause(ctx, s.duration, errOver)
	defer stop()
	var sides sync.WaitGroup
	for _, side := range []func(ctx, timed context.Context) error{s.traffic, s.disturb, s.guard} {
		sides.Go(func() {
			if err := side(ctx, timed); err != nil && !over(timed) {
				cancel(err)
			}
		})
	}
	err := s.looks(timed)
	if over(timed) {
		err = nil
	}
	stop()
	sides.Wait()
	if err != nil || ctx.Err() != nil {
		err = errors.Join(err, context.Cause(ctx))
		s.report.fail("stopped early, after %.0f s: %v", time.Since(s.start).Seconds(), err)
		return errors.Join(err, s.report.write(s.options.JSON))
	}
	if err := s.drained(ctx); err != nil {
		return err
	}
	s.report.judge()
	if err := s.report.write(s.options.JSON); err != nil {
		return err
	}
	return s.report.print(os.Stdout)
}

var errOver = errors.New("the time is over")

// over reports whether ctx ended because the soak's time is over.
func over(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errOver) }
