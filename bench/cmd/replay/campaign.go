// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nomad-pal/nomad-pal/bench/replay"
	"github.com/nomad-pal/nomad-pal/bench/slurm"
)

// campaign is a list of runs, some of which run in parallel.
type campaign struct {
	options
	tasks []task
	// once executes one run. Tests replace it.
	once func(context.Context, task) (*replay.Result, error)
	// busy is locked while a cluster starts, because two starting clusters would slow each other
	// down.
	busy     chan struct{}
	progress io.Writer

	mu     sync.Mutex
	report *report // guarded by mu
	done   int     // guarded by mu
}

// task is one run.
type task struct {
	scheduler
	outliers int
	seed     uint64
	gpus     *replay.GPUs
	jobs     []replay.Job
}

func (t task) String() string {
	name := t.name
	if t.preempt {
		name += ", preemption"
	}
	return fmt.Sprintf("%s, %s, seed %d", name, populationName(t.outliers), t.seed)
}

// campaign plans the runs. Each repetition runs all schedulers and populations before the next
// repetition starts.
func (o options) campaign() (*campaign, error) {
	chosen, err := o.chosen()
	if err != nil {
		return nil, err
	}
	populations, err := o.populations()
	if err != nil {
		return nil, err
	}
	if o.reps < 1 || o.parallel < 1 {
		return nil, fmt.Errorf("-repetitions %d and -parallel %d must be at least 1", o.reps, o.parallel)
	}
	if o.overload > 0 && o.reps > 1 {
		return nil, fmt.Errorf("-overload %v allows only one repetition, because the number of jobs in the hour depends on -seed", o.overload)
	}
	c := &campaign{options: o, report: newReport(o), busy: make(chan struct{}, 1), progress: os.Stderr}
	c.once = c.onCluster
	if chosen, err = c.startable(chosen, slurm.Missing(true)); err != nil {
		return nil, err
	}
	for rep := range o.reps {
		seed := o.seed + uint64(rep)
		jobs, err := o.workloadJobs(seed)
		if err != nil {
			return nil, err
		}
		c.report.Jobs, c.report.GPUs = len(jobs), 4*o.nodes
		for _, n := range populations {
			gpus, _, err := replay.DrawGPUs(o.nodes, 4, n, seed)
			if err != nil {
				return nil, err
			}
			if o.models {
				if gpus, err = twoModels(gpus, o.nodes); err != nil {
					return nil, err
				}
			}
			for _, s := range chosen {
				c.tasks = append(c.tasks, task{scheduler: s, outliers: n, seed: seed, gpus: gpus, jobs: jobs})
			}
		}
	}
	return c, c.takeUp()
}

// startable removes Slurm's lines if this machine cannot run Slurm, and fails if -modes names such
// a line.
func (c *campaign) startable(chosen []scheduler, lacks string) ([]scheduler, error) {
	some := slices.DeleteFunc(slices.Clone(chosen), func(s scheduler) bool { return s.limit != nil })
	if lacks == "" || len(some) == len(chosen) {
		return chosen, nil
	}
	if c.modes != "" {
		return nil, fmt.Errorf("-modes %s: %s", c.modes, lacks)
	}
	c.say("", "runs without Slurm: "+lacks)
	return some, nil
}

// takeUp continues an interrupted campaign: it reads the result file and removes the tasks that
// have a result.
func (c *campaign) takeUp() error {
	if !c.resume {
		return nil
	}
	before, err := readReport(c.JSON)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := c.report.sameAs(before); err != nil {
		return fmt.Errorf("resuming %q: %w", c.JSON, err)
	}
	c.report.Commit = commits(before.Commit, c.report.Commit)
	c.report.Runs = before.Runs
	all := len(c.tasks)
	c.tasks = slices.DeleteFunc(c.tasks, func(t task) bool { return c.report.has(t) })
	c.say("", fmt.Sprintf("%d of %d runs are in %q", all-len(c.tasks), all, c.JSON))
	return nil
}

// commits lists the commits that runs were made with, without duplicates.
func commits(before, now string) string {
	all := strings.Split(before, ", ")
	if !slices.Contains(all, now) {
		all = append(all, now)
	}
	return strings.Join(all, ", ")
}

// run executes the campaign: first several runs at a time, then, one by one, the runs that need the
// whole machine. A run that fails twice ends the campaign.
func (c *campaign) run(ctx context.Context) error {
	var beside, alone []task
	for _, t := range c.tasks {
		if t.alone {
			alone = append(alone, t)
		} else {
			beside = append(beside, t)
		}
	}
	if err := c.runAll(ctx, beside, c.parallel); err != nil {
		return err
	}
	return c.runAll(ctx, alone, 1)
}

func (c *campaign) runAll(ctx context.Context, tasks []task, parallel int) error {
	runs, ctx := errgroup.WithContext(ctx)
	runs.SetLimit(parallel)
	for _, t := range tasks {
		runs.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := c.do(ctx, t); err != nil {
				return fmt.Errorf("%v: %w", t, err)
			}
			return nil
		})
	}
	return runs.Wait()
}

// do executes one run and writes all results so far.
func (c *campaign) do(ctx context.Context, t task) error {
	begin := time.Now()
	r, err := c.once(ctx, t)
	if err != nil && ctx.Err() == nil { // retry on a new cluster
		c.say(t.String(), fmt.Sprintf("failed, retrying: %v", err))
		r, err = c.once(ctx, t)
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.add(t, r)
	c.done++
	s := r.Summarize(c.report.GPUs)
	c.say("", fmt.Sprintf("%d of %d: %v: %d of %d jobs, avg JCT %.1f s, makespan %.0f s, useful %.1f %%; %.0f s in total",
		c.done, len(c.tasks), t, s.Finished, s.Jobs, s.AvgJCT.Seconds(), s.Makespan.Seconds(), 100*s.Useful, time.Since(begin).Seconds()))
	return c.report.write(c.JSON)
}

func (c *campaign) say(who, line string) {
	if who != "" {
		line = "  [" + who + "] " + line
	}
	fmt.Fprintln(c.progress, line)
}

// onCluster runs the workload on a new cluster, so that runs do not affect each other.
func (c *campaign) onCluster(ctx context.Context, t task) (*replay.Result, error) {
	setup := replay.Setup{
		LightTasks: true,
		Nomad:      c.nomad, Bin: c.bin, GPUs: t.gpus, Penalty: penalty,
		Restart: c.compressed(restart), GiveUp: c.compressed(t.giveUp),
		Progress: func(line string) { c.say(t.String(), line) },
	}
	if t.limit != nil {
		m := replay.SlurmMode{Name: t.name, Clock: c.compress, Limit: t.limit(t.seed)}
		return replay.RunSlurm(ctx, setup, m, t.jobs, c.bound)
	}
	done, err := c.turn(ctx)
	if err != nil {
		return nil, err
	}
	b, err := replay.Start(ctx, setup)
	done()
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := b.Close(); e != nil { // the run is over, so its measurements are valid
			c.say(t.String(), fmt.Sprintf("stopping the cluster: %v", e))
		}
	}()
	jobs := slices.Clone(t.jobs)
	for i := range jobs {
		jobs[i].Preempt = t.preempt
		t.choose.tell(&jobs[i])
	}
	m := replay.Mode{Name: t.name, Algorithm: t.algorithm}
	if t.rules == nil {
		return b.Run(ctx, m, jobs, c.bound)
	}
	m.Placer = t.rules.HCL()
	r, err := b.Run(ctx, m, jobs, c.bound)
	if err != nil {
		return nil, err
	}
	if c.models { // the simulator does not know the applications' speeds in these runs
		return r, nil
	}
	return r, c.predictRun(t.scheduler, t.gpus, r)
}

// turn waits until no other task is starting a cluster. done lets the next task start one; it can
// be called twice.
func (c *campaign) turn(ctx context.Context) (done func(), err error) {
	select {
	case c.busy <- struct{}{}:
		return sync.OnceFunc(func() { <-c.busy }), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (o options) predictRun(s scheduler, gpus *replay.GPUs, r *replay.Result) error {
	p, err := replay.PredictRun(r, gpus, penalty, s.rules.Queue(), o.timing())
	if err != nil {
		return err
	}
	r.Predicted = &p
	return nil
}

func (o options) compressed(d time.Duration) time.Duration {
	return time.Duration(float64(d) / o.compress)
}
