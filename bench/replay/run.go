// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/bench/rank"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// Mode names the scheduler that places the jobs.
type Mode struct {
	Name string
	// Algorithm is Nomad's scheduler algorithm: "binpack" or "spread".
	Algorithm string
	// Placer runs nomad-pal with this agent configuration (HCL); "" is plain
	// Nomad.
	Placer string
}

// Run submits the jobs at their times, and watches the jobs until all have finished or the time
// limit is over. When Run returns, no job is on the cluster.
func (b *Bed) Run(ctx context.Context, m Mode, jobs []Job, bound time.Duration) (result *Result, err error) {
	if _, _, err := b.API().Operator().SchedulerSetConfiguration(&api.SchedulerConfiguration{SchedulerAlgorithm: api.SchedulerAlgorithm(m.Algorithm)}, nil); err != nil {
		return nil, fmt.Errorf("setting the scheduler algorithm: %w", err)
	}
	r, err := rank.Listen(b.GiveUp)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	on := &onNomad{Bed: b, mode: m, rendezvous: r}
	if m.Placer != "" {
		if on.placer, err = b.StartPlacer(cluster.PlacerOptions{Config: m.Placer}); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, on.placer.Stop()) }()
	}
	run := newRun(b.Setup, m.Name, jobs, r, on)
	err = run.all(ctx, bound)
	if errClear := b.clear(context.WithoutCancel(ctx), jobs); err == nil {
		err = errClear
	}
	if err != nil && on.placer != nil {
		err = fmt.Errorf("%w\nthe last lines of the placer's log:\n%s", err, on.placer.LogTail(15))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Name, err)
	}
	return run.result, nil
}

// scheduler starts the ranks of a run.
type scheduler interface {
	submit(context.Context, Job) error
	// tend does what the scheduler needs during the run; watch calls tend repeatedly with the
	// gangs' current states.
	tend(ctx context.Context, now time.Time, states []rank.State) error
	// cost returns the resources that the placer used; nil without a placer.
	cost() (*Cost, error)
	// tell adds to a job's result the data that only the scheduler has.
	tell(context.Context, *JobResult) error
}

type run struct {
	Setup
	on         scheduler
	jobs       []Job
	rendezvous *rank.Rendezvous
	start      time.Time
	result     *Result
}

func newRun(s Setup, name string, jobs []Job, r *rank.Rendezvous, on scheduler) *run {
	return &run{Setup: s, on: on, jobs: jobs, rendezvous: r, start: time.Now(), result: &Result{Mode: name}}
}

// onNomad is the scheduler for runs under plain Nomad or the placer.
type onNomad struct {
	*Bed
	mode       Mode
	rendezvous *rank.Rendezvous
	placer     *cluster.Placer // nil under plain Nomad
	again      retries
}

func (n *onNomad) submit(ctx context.Context, j Job) error {
	return n.Submit(ctx, j, n.rendezvous, n.mode.Placer != "")
}

func (n *onNomad) tend(ctx context.Context, now time.Time, states []rank.State) error {
	if n.placer != nil {
		return nil
	}
	return n.again.push(ctx, n.API(), now, states)
}

func (n *onNomad) cost() (*Cost, error) {
	if n.placer == nil {
		return nil, nil
	}
	return costOf(n.placer.PID())
}

func (n *onNomad) tell(ctx context.Context, jr *JobResult) error {
	if err := n.allocated(ctx, jr); err != nil || n.placer == nil {
		return err
	}
	return n.explained(ctx, jr)
}

func (r *run) all(ctx context.Context, bound time.Duration) error {
	for _, j := range r.jobs {
		r.rendezvous.Expect(r.Gang(j))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bound, errBound)
	defer cancel()
	var submitting sync.WaitGroup
	var submitErr error
	submitted, all := make([]time.Time, len(r.jobs)), make(chan struct{})
	submitting.Go(func() {
		defer close(all)
		submitErr = r.submitAll(ctx, submitted, cancel)
	})
	err := r.watch(ctx, all)
	submitting.Wait()
	if submitErr != nil && !errors.Is(submitErr, context.Canceled) && !errors.Is(submitErr, context.DeadlineExceeded) {
		return submitErr
	}
	if err != nil && !errors.Is(context.Cause(ctx), errBound) {
		return err
	}
	r.result.Bounded = errors.Is(context.Cause(ctx), errBound)
	r.result.Took = time.Since(r.start.Add(r.jobs[0].Submit))
	if r.result.Cost, err = r.on.cost(); err != nil {
		return err
	}
	return r.collect(context.WithoutCancel(ctx), submitted)
}

var errBound = errors.New("the run's time is over")

func (r *run) submitAll(ctx context.Context, submitted []time.Time, cancel context.CancelFunc) error {
	for i, j := range r.jobs {
		if err := cluster.Pause(ctx, time.Until(r.start.Add(j.Submit))); err != nil {
			return err
		}
		submitted[i] = time.Now()
		if err := r.on.submit(ctx, j); err != nil {
			cancel()
			return err
		}
	}
	return nil
}

// Gang describes the work of a job's ranks on this bed.
func (s Setup) Gang(j Job) rank.Gang {
	return rank.Gang{Job: j.ID, Ranks: j.Allocations, Iterations: j.Iterations, Iteration: j.Iteration,
		Class: cmp.Or(j.App, string(j.Class)), Penalty: s.Penalty, Restart: s.Restart}
}

// Submit writes the jobspec of a job and runs the command that a user would run: `nomad-pal run`
// for a gated job, else `nomad job run`.
func (b *Bed) Submit(ctx context.Context, j Job, r *rank.Rendezvous, gated bool) error {
	path, err := b.render(j, r)
	if err != nil {
		return fmt.Errorf("writing jobspec of %q: %w", j.ID, err)
	}
	cmd := b.Command(ctx, "nomad", "job", "run", "-detach", path)
	if gated {
		cmd = b.Command(ctx, "nomad-pal", "run", "-detach", path)
	}
	out, err := cmd.CombinedOutput()
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("submit %q: %s: %w\n%s", j.ID, strings.Join(cmd.Args, " "), err, out)
	}
	return ctx.Err()
}

// watch samples the states of the gangs until all have finished, or the gangs are deadlocked.
func (r *run) watch(ctx context.Context, submitted <-chan struct{}) error {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	last, next := time.Now(), time.Now()
	var still stillness
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		states := r.rendezvous.States()
		now := time.Now()
		r.result.sample(states, now.Sub(r.start), now.Sub(last))
		last = now
		if now.After(next) {
			r.Progress(r.result.line(states, now.Sub(r.start)))
			next = now.Add(5 * time.Second)
		}
		if !slices.ContainsFunc(states, func(s rank.State) bool { return !s.Finished }) {
			return nil
		}
		if still.over(now, states) && closed(submitted) {
			r.result.Stuck = true
			return nil
		}
		if err := r.on.tend(ctx, now, states); err != nil {
			return err
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// clear stops and purges the jobs and makes Nomad collect its garbage.
func (b *Bed) clear(ctx context.Context, jobs []Job) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	b.Progress("clearing the cluster")
	var ids []string
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	if err := b.Purge(ctx, ids...); err != nil {
		return err
	}
	return b.API().System().GarbageCollect()
}
