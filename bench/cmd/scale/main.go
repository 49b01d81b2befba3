// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command scale is `make scale`. It runs one real Nomad server with thousands of simulated nodes of
// 8 GPUs (bench/simnodes), on which plain Nomad and then the placer place gangs. The command
// measures the speed and the cost of plain Nomad and the placer, writes a JSON file, prints tables
// and, with -html, writes a report with plots.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/bench/command"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

type options struct {
	command.Results
	nomad, bin, sizes, profiles   string
	gangs, paced, rounds, clients int
	extra, crowds                 bool
}

func main() {
	var o options
	flag.StringVar(&o.nomad, "nomad", "", "nomad binary")
	flag.StringVar(&o.bin, "bin", "build/bin", "folder with nomad-pal's binaries and simnodes")
	o.Flags("scale")
	flag.StringVar(&o.sizes, "nodes", "100,1000,5000,10000", "comma-separated cluster sizes in nodes; empty: only the measurement of -extra")
	flag.IntVar(&o.gangs, "gangs", 200, "maximum number of gangs that are submitted at once; each has 2 × 4 GPUs, and all gangs together request at most half of the cluster")
	flag.IntVar(&o.paced, "paced", 40, "gangs submitted one after the other, for latencies")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds of measurements at each size; results are medians")
	flag.BoolVar(&o.extra, "extra", true, "also measure, at 1,000 nodes, a gang of 1,000 GPUs, and 10,000 queued jobs with a restart of the placer")
	flag.IntVar(&o.clients, "clients", 16, "number of real clients with 64 emulated GPUs each, which run bursts of jobs and gangs, and of Slurm nodes for comparison; 0: none")
	flag.BoolVar(&o.crowds, "crowds", true, "on the real clients, also measure bursts of single jobs")
	flag.StringVar(&o.profiles, "profiles", "", "folder for CPU profiles (go tool pprof) of Nomad's server during bursts and crowds")
	flag.Parse()
	command.Main("scale", func(ctx context.Context) error { return run(ctx, o) })
}

func run(ctx context.Context, o options) error {
	rep := &report{Provenance: command.NewProvenance("scale")}
	if o.From != "" {
		rep = &report{}
		if err := command.Read(o.From, rep); err != nil {
			return err
		}
		return o.Show(rep.Page())
	}
	if o.rounds < 1 {
		return fmt.Errorf("-rounds: %d, at least 1 is needed", o.rounds)
	}
	for _, text := range strings.FieldsFunc(o.sizes, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-nodes: %q is not a number of nodes", text)
		}
		p, err := o.point(ctx, n)
		if err != nil {
			return fmt.Errorf("%d nodes: %w", n, err)
		}
		rep.Points = append(rep.Points, p)
		if err := rep.write(o.JSON); err != nil {
			return err
		}
	}
	if o.clients > 0 {
		c, err := o.onClients(ctx)
		if err != nil {
			return fmt.Errorf("%d real clients: %w", o.clients, err)
		}
		if c.SlurmGangs, err = o.onSlurm(ctx); err != nil {
			return err
		}
		rep.Clients = c
		if err := rep.write(o.JSON); err != nil {
			return err
		}
	}
	if o.extra {
		e, err := o.extremes(ctx)
		if err != nil {
			return fmt.Errorf("extremes: %w", err)
		}
		rep.Extremes = e
		if err := rep.write(o.JSON); err != nil {
			return err
		}
	}
	return o.Show(rep.Page())
}

// bed is a Nomad server with simulated nodes, or with real clients.
type bed struct {
	*cluster.Cluster
	api   *api.Client
	o     options
	nodes int
	sim   *cluster.Simulated // nil with real clients
	// program returns a new task for a job.
	program func() *api.Task
}

func (o options) start(ctx context.Context, nodes int) (*bed, error) {
	c, err := cluster.Start(ctx, cluster.Options{Nomad: o.nomad, Bin: o.bin, HeartbeatTTL: time.Hour, ServerHCL: o.serverHCL(), Progress: say})
	if err != nil {
		return nil, err
	}
	b := &bed{Cluster: c, o: o, nodes: nodes, program: func() *api.Task {
		return api.NewTask("rank", "raw_exec").SetConfig("command", "/bin/true")
	}}
	began := time.Now()
	if b.sim, err = c.Simulate(ctx, c.Program("simnodes"), nodes, "-gpus", "8", "-rack", strconv.Itoa(rack)); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	say(fmt.Sprintf("%d nodes registered in %.1f s", nodes, time.Since(began).Seconds()))
	if err := b.inUse(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// inUse connects to the server and starts an allocation on every node.
func (b *bed) inUse(ctx context.Context) (err error) {
	if b.api, err = connect(b.Servers()[0].HTTPAddr()); err != nil {
		return err
	}
	if err := b.use(ctx); err != nil {
		return fmt.Errorf("starting an allocation on every node: %w", err)
	}
	return nil
}

// connect returns a client that, like the placer's client, requests no compression. Compression
// would take much of the server's time.
func connect(url string) (*api.Client, error) {
	c, err := nomad.NewClient(&api.Config{Address: url}, "")
	if err != nil {
		return nil, err
	}
	return c.API(), nil
}

func say(line string) { fmt.Fprintln(os.Stderr, " ", line) }

// rack is the number of nodes in a rack.
const rack = 16

// startPlacer starts the agent and waits until the agent prints the address of its API. stop ends
// the agent.
func (b *bed) startPlacer(ctx context.Context) (pid int, stop func() error, err error) {
	p, err := b.StartPlacer(cluster.PlacerOptions{Config: "http {\n  bind_port = 0\n}\n"})
	if err != nil {
		return 0, nil, err
	}
	return p.PID(), p.Stop, p.Serves(ctx)
}
