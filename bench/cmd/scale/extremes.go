// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// extremes has single measurements at 1,000 nodes × 8 GPUs.
type extremes struct {
	// WideGPUs is the size of a wide gang, WideMS the time to place this gang.
	WideGPUs int     `json:"wide_gang_gpus"`
	WideMS   float64 `json:"wide_gang_ms"`
	// Queued is the number of jobs that are submitted at once while no GPU is free, before the
	// placer is restarted.
	Queued        int     `json:"queued_jobs"`
	QueuedRSS     float64 `json:"placer_rss_mb"`
	RestartMS     float64 `json:"first_placement_after_restart_ms"`
	RestartCPU    float64 `json:"placer_cpu_until_first_placement_s,omitempty"` // since its restart
	DrainGangsPer float64 `json:"drain_gangs_per_s"`
}

func (o options) extremes(ctx context.Context) (e *extremes, err error) {
	fmt.Fprintln(os.Stderr, "extremes at 1000 nodes")
	b, err := o.start(ctx, 1000)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	pid, stop, err := b.startPlacer(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	w, err := b.watch(ctx)
	if err != nil {
		return nil, err
	}
	defer w.stop()
	e = &extremes{WideGPUs: 1000, Queued: 10000}
	began, err := b.submit(ctx, b.gang("wide", gated, 125, 8))
	if err != nil {
		return nil, err
	}
	at, err := w.placed(ctx, "wide", 125)
	if err != nil {
		return nil, err
	}
	e.WideMS = at.Sub(began).Seconds() * 1000
	if err := b.Deregister(ctx, "wide", false); err != nil {
		return nil, err
	}
	return e, b.queueMany(ctx, w, e, pid, &stop)
}

// queueMany fills the cluster with wide gangs, queues thousands of one-GPU jobs, restarts the
// placer, frees the cluster and watches the queue drain.
func (b *bed) queueMany(ctx context.Context, w *watcher, e *extremes, pid int, stop *func() error) error {
	const fillers = 8
	if err := b.submitAll(ctx, fillers, func(i int) *api.Job { return b.gang(fmt.Sprintf("all-%d", i), gated, 125, 8) }); err != nil {
		return err
	}
	for i := range fillers {
		if _, err := w.placed(ctx, fmt.Sprintf("all-%d", i), 125); err != nil {
			return err
		}
	}
	if err := b.submitAll(ctx, e.Queued, func(i int) *api.Job { return b.gang(fmt.Sprintf("q-%d", i), gated, 1, 1) }); err != nil {
		return err
	}
	say(fmt.Sprintf("%d jobs queued", e.Queued))
	if err := settled(ctx, pid); err != nil {
		return err
	}
	e.QueuedRSS = rss(pid)
	err := (*stop)()
	if err != nil {
		return err
	}
	if pid, *stop, err = b.startPlacer(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := b.stopAll(ctx, "all", fillers); err != nil {
		return err
	}
	if _, err := w.first(ctx, "q-", 1); err != nil {
		return err
	}
	e.RestartCPU = cpuSeconds(pid)
	const drained = 1000
	at, err := w.first(ctx, "q-", drained)
	if err != nil {
		return err
	}
	e.RestartMS = at[0].Sub(began).Seconds() * 1000
	e.DrainGangsPer = drained / at[drained-1].Sub(at[0]).Seconds()
	return nil
}

// settle waits until Nomad is nearly idle.
func (b *bed) settle(ctx context.Context) error {
	var pids []int
	for _, a := range slices.Concat(b.Servers(), b.Clients()) {
		pids = append(pids, a.PID())
	}
	return settled(ctx, pids...)
}

// settled waits until the processes are nearly idle, at most for half a minute.
func settled(ctx context.Context, pids ...int) error {
	used := func() (all float64) {
		for _, pid := range pids {
			all += cpuSeconds(pid)
		}
		return all
	}
	before := used()
	for range 15 {
		if err := cluster.Pause(ctx, 2*time.Second); err != nil {
			return err
		}
		now := used()
		if now-before < 0.5 {
			return nil
		}
		before = now
	}
	return nil
}
