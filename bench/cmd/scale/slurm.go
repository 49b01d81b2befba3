// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/slurm"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// slurmBed is a Slurm cluster with as many nodes and GPUs as the real clients.
type slurmBed struct {
	*slurm.Cluster
	started string // folder in which each task creates a file when it starts
}

// onSlurm returns the measurements of gangs on Slurm, nil if this machine has no Slurm.
func (o options) onSlurm(ctx context.Context) (g *gangs, err error) {
	if lacks := slurm.Missing(false); lacks != "" {
		say("gangs without Slurm: " + lacks)
		return nil, nil
	}
	var names []string
	for n := range o.clients {
		names = append(names, fmt.Sprintf("gpu-%02d", n))
	}
	c, err := slurm.Start(ctx, slurm.Options{Nodes: names, GPUsEach: gpusPerClient, Progress: say})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	b := &slurmBed{Cluster: c, started: filepath.Join(c.Dir, "started")}
	if err := os.Mkdir(b.started, 0o755); err != nil {
		return nil, err
	}
	x := &taken{}
	for round := range o.rounds {
		if err := b.round(ctx, fmt.Sprint("slurm-", round), o.burst(), x); err != nil {
			return nil, fmt.Errorf("round %d on Slurm: %w", round, err)
		}
	}
	return x.gangs(), nil
}

// round measures gangs on Slurm, like [bed.gangsRun] on Nomad.
func (b *slurmBed) round(ctx context.Context, name string, burst int, x *taken) error {
	for i := range pacedGangs {
		began, id := time.Now(), fmt.Sprintf("%s-paced-%d", name, i)
		if err := b.submit(ctx, id); err != nil {
			return err
		}
		at, err := b.runs(ctx, id)
		if err != nil {
			return err
		}
		x.placed = append(x.placed, at.Sub(began).Seconds()*1000)
	}
	if err := b.clear(ctx); err != nil {
		return err
	}
	id := func(i int) string { return fmt.Sprintf("%s-burst-%d", name, i) }
	began := time.Now()
	last := began
	if err := fromAllSides(burst, func(i int) error { return b.submit(ctx, id(i)) }); err != nil {
		return err
	}
	for i := range burst {
		at, err := b.runs(ctx, id(i))
		if err != nil {
			return err
		}
		if at.After(last) {
			last = at
		}
	}
	x.rates = append(x.rates, float64(burst)/last.Sub(began).Seconds())
	return b.clear(ctx)
}

// gangTasks is the number of a gang's members. gangGPUs is the number of GPUs of each member.
const gangTasks, gangGPUs = 2, 4

// submit submits a gang that runs until it is stopped, like [bed.gang].
func (b *slurmBed) submit(ctx context.Context, id string) error {
	_, err := b.Submit(ctx, slurm.Job{Name: id, Tasks: gangTasks, GPUsPerTask: gangGPUs, Limit: time.Hour,
		Command: []string{"/bin/sh", "-c", `: >"$0/$SLURM_JOB_NAME.$SLURM_PROCID"; exec sleep 3600`, b.started}})
	return err
}

// runs waits until all tasks of a gang run, and returns the time at which the last task started.
func (b *slurmBed) runs(ctx context.Context, id string) (last time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for i := 0; i < gangTasks; {
		f, err := os.Stat(filepath.Join(b.started, fmt.Sprintf("%s.%d", id, i)))
		switch {
		case err == nil:
			i++
			if f.ModTime().After(last) {
				last = f.ModTime()
			}
			continue
		case !errors.Is(err, os.ErrNotExist):
			return last, err
		}
		if err := cluster.Pause(ctx, 10*time.Millisecond); err != nil {
			return last, fmt.Errorf("waiting for task %d of %q: %w%s", i, id, err, b.Output(id))
		}
	}
	return last, nil
}

// clear stops all gangs and waits until Slurm no longer lists them.
func (b *slurmBed) clear(ctx context.Context) error {
	if err := b.CancelAll(ctx); err != nil {
		return err
	}
	return cluster.Until(ctx, "Slurm has no jobs", func(ctx context.Context) (string, error) {
		queue, err := b.Queue(ctx)
		if err != nil || len(queue) == 0 {
			return "", err
		}
		return fmt.Sprintf("%d jobs left", len(queue)), nil
	})
}
