// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/bench/replay"
)

// gpusPerClient is the number of GPUs of a client, enough for 16 clients to run a thousand jobs at
// once.
const gpusPerClient = 64

// clients has the results of crowds (jobs submitted at once) on a cluster of real clients. Tasks
// are real processes, started by a simple driver (bench/rankdriver).
type clients struct {
	Nodes int     `json:"nodes"`
	GPUs  int     `json:"gpus"`
	Gated []crowd `json:"gated"`
	Plain []crowd `json:"plain"`
	// The measurements of gangs on these clients and, if Slurm is installed, on as many Slurm
	// nodes.
	PlainGangs *gangs `json:"plain_gangs,omitempty"`
	GatedGangs *gangs `json:"gated_gangs,omitempty"`
	SlurmGangs *gangs `json:"slurm_gangs,omitempty"`
}

func (o options) onClients(ctx context.Context) (c *clients, err error) {
	fmt.Fprintf(os.Stderr, "%d real clients\n", o.clients)
	gpus, _, err := replay.DrawGPUs(o.clients, gpusPerClient, 0, 1)
	if err != nil {
		return nil, err
	}
	cluster, err := replay.Start(ctx, replay.Setup{Nomad: o.nomad, Bin: o.bin, GPUs: gpus, LightTasks: true, ServerHCL: o.serverHCL(), Progress: say})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	b := &bed{Cluster: cluster.Cluster, o: o, nodes: o.clients, program: sleeps}
	if err := b.inUse(ctx); err != nil {
		return nil, err
	}
	taken := map[how]*taken{plain: {}, gated: {}}
	sizes := slices.DeleteFunc([]int{1, 100, 1000}, func(n int) bool { return n >= len(gpus.All) })
	if !o.crowds {
		sizes = nil
	}
	for round := range o.rounds {
		if err := b.crowdRound(ctx, round, sizes, taken); err != nil {
			return nil, fmt.Errorf("round %d: %w", round, err)
		}
	}
	return &clients{Nodes: o.clients, GPUs: len(gpus.All), Gated: taken[gated].medians(), Plain: taken[plain].medians(),
		PlainGangs: taken[plain].gangs(), GatedGangs: taken[gated].gangs()}, nil
}

// sleeps returns a task that runs until it is stopped.
func sleeps() *api.Task {
	t := api.NewTask("rank", "rank").SetConfig("command", "/bin/sleep").SetConfig("args", []string{"3600"})
	off := true
	t.LogConfig = &api.LogConfig{Disabled: &off}
	return t
}

// crowdRound does one round of measurements of crowds and gangs on real clients.
func (b *bed) crowdRound(ctx context.Context, round int, sizes []int, all map[how]*taken) (err error) {
	if err := b.crowdsOf(ctx, plain, round, sizes, all[plain]); err != nil {
		return fmt.Errorf("plain Nomad: %w", err)
	}
	_, stop, err := b.startPlacer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := b.crowdsOf(ctx, warm, round, []int{1}, &taken{}); err != nil {
		return fmt.Errorf("placer: %w", err)
	}
	if err := b.crowdsOf(ctx, gated, round, sizes, all[gated]); err != nil {
		return fmt.Errorf("placer, gated jobs: %w", err)
	}
	return nil
}

func (b *bed) crowdsOf(ctx context.Context, h how, round int, sizes []int, x *taken) error {
	w, err := b.watch(ctx)
	if err != nil {
		return err
	}
	defer w.stop()
	name := fmt.Sprintf("%s-%d", h, round)
	if err := b.measureCrowds(ctx, w, h, name, sizes, x); err != nil {
		return err
	}
	if h != warm {
		if err := b.gangsRun(ctx, w, h, name+"-gang", x); err != nil {
			return fmt.Errorf("gangs: %w", err)
		}
	}
	return b.forget(ctx, name)
}
