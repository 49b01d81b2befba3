// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/rank"
	"github.com/nomad-pal/nomad-pal/bench/slurm"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// SlurmMode describes a run under Slurm with backfill.
type SlurmMode struct {
	Name string
	// Clock is the factor by which time runs faster in the run than in the trace. Slurm's clock
	// runs faster by the same factor, so time limits are in the trace's time.
	Clock float64
	// Limit returns the time limit of a job from the job's work in the trace, as the job's user
	// would estimate it.
	Limit sim.Estimate
}

// RunSlurm submits the jobs at their times to a new Slurm cluster with these GPUs, and watches them
// until all have finished or the time limit is over.
func RunSlurm(ctx context.Context, s Setup, m SlurmMode, jobs []Job, bound time.Duration) (result *Result, err error) {
	r, err := rank.Listen(s.GiveUp)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	nodes := s.GPUs.byNode()
	c, err := slurm.Start(ctx, slurm.Options{Nodes: s.GPUs.nodes(), GPUsEach: len(nodes[nodeName(0)]), Clock: m.Clock, Progress: s.Progress})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	on := &onSlurm{Cluster: c, rendezvous: r, limits: map[string]time.Duration{}, submitted: map[string]bool{}}
	on.command = []string{filepath.Join(s.Bin, "pal-rank"), "-rendezvous", r.Addr()}
	if on.command[0], err = filepath.Abs(on.command[0]); err != nil {
		return nil, err
	}
	for flag, v := range map[string]any{"slurm": nodes, "speeds": s.GPUs.Speeds()} {
		path := filepath.Join(c.Dir, flag+".json")
		text, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(path, text, 0o644)
		}
		if err != nil {
			return nil, fmt.Errorf("writing the ranks' files: %w", err)
		}
		on.command = append(on.command, "-"+flag, path)
	}
	for i, j := range jobs {
		work := trace.Job{Iterations: 1, IterTimeS: j.Work().Seconds() * m.Clock}
		on.limits[j.ID] = m.Limit(i, work)
	}
	run := newRun(s, m.Name, jobs, r, on)
	if err := run.all(ctx, bound); err != nil {
		return nil, fmt.Errorf("%s: %w", m.Name, err)
	}
	return run.result, nil
}

// onSlurm is the scheduler for runs under Slurm.
type onSlurm struct {
	*slurm.Cluster
	rendezvous *rank.Rendezvous
	command    []string
	limits     map[string]time.Duration // time limits by job
	looked     time.Time

	mu        sync.Mutex
	submitted map[string]bool // guarded by mu
}

func (s *onSlurm) submit(ctx context.Context, j Job) error {
	_, err := s.Submit(ctx, slurm.Job{Name: j.ID, Tasks: j.Allocations, GPUsPerTask: j.GPUsEach, Limit: s.limits[j.ID], Command: s.command})
	if err == nil {
		s.mu.Lock()
		s.submitted[j.ID] = true
		s.mu.Unlock()
	}
	return err
}

// tend returns an error if Slurm no longer lists an unfinished gang, because a failed launch would
// otherwise stay hidden until the time limit of the run.
func (s *onSlurm) tend(ctx context.Context, now time.Time, _ []rank.State) error {
	if now.Sub(s.looked) < 10*time.Second {
		return nil
	}
	s.looked = now
	s.mu.Lock()
	submitted := maps.Clone(s.submitted)
	s.mu.Unlock()
	queue, err := s.Queue(ctx)
	if err != nil {
		return err
	}
	if lost := lost(submitted, queue, s.rendezvous.States()); lost != "" {
		return fmt.Errorf("slurm no longer lists %q, which has not finished%s", lost, s.Output(lost))
	}
	return nil
}

// lost returns a submitted job that is missing in Slurm's queue but has not finished; "" if no job
// is lost.
func lost(submitted map[string]bool, queue []slurm.Queued, after []rank.State) string {
	queued := map[string]bool{}
	for _, q := range queue {
		queued[q.Name] = true
	}
	for _, g := range after {
		if submitted[g.Job] && !queued[g.Job] && !g.Finished {
			return g.Job
		}
	}
	return ""
}

func (*onSlurm) cost() (*Cost, error) { return nil, nil }

// tell adds nothing: the ranks report their GPUs, and Slurm's times follow its fast clock.
func (*onSlurm) tell(context.Context, *JobResult) error { return nil }

func nodeName(n int) string { return fmt.Sprintf("gpu-%02d", n) }

// nodes returns the names of the nodes, in order.
func (g *GPUs) nodes() (names []string) {
	for n := range g.All[len(g.All)-1].Node + 1 {
		names = append(names, nodeName(n))
	}
	return names
}

// byNode returns the ids of each node's GPUs, in the order of their numbers on the node.
func (g *GPUs) byNode() map[string][]string {
	ids := map[string][]string{}
	for _, u := range g.All {
		ids[nodeName(u.Node)] = append(ids[nodeName(u.Node)], u.ID)
	}
	return ids
}
