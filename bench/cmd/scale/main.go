// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command scale is `make scale`: one real Nomad server with thousands of
// simulated nodes of 8 GPUs (bench/simnodes), gangs placed by plain Nomad and
// by the placer, and what both cost. It writes a JSON file and prints a table; -html writes a report with plots.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/bench/command"
	"github.com/nomad-pal/nomad-pal/bench/replay"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

type options struct {
	command.Results
	nomad, bin, sizes, profiles   string
	gangs, paced, rounds, clients int
	extra                         bool
}

func main() {
	var o options
	flag.StringVar(&o.nomad, "nomad", "", "nomad binary")
	flag.StringVar(&o.bin, "bin", "build/bin", "folder of our binaries and of simnodes")
	o.Flags("scale")
	flag.StringVar(&o.sizes, "nodes", "100,1000,5000,10000", "numbers of nodes; empty: only what -extra says")
	flag.IntVar(&o.gangs, "gangs", 200, "gangs of the burst, of 2 × 4 GPUs each; as many as half the cluster holds at most")
	flag.IntVar(&o.paced, "paced", 40, "gangs submitted one after the other, for latencies")
	flag.IntVar(&o.rounds, "rounds", 3, "how often everything is measured at one size; results are medians")
	flag.BoolVar(&o.extra, "extra", true, "also a gang of 1,000 GPUs, 10,000 queued jobs and a restart of the placer in the middle, at 1,000 nodes")
	flag.IntVar(&o.clients, "clients", 16, "real clients of 64 emulated GPUs each, for crowds of jobs that run; 0: none")
	flag.StringVar(&o.profiles, "profiles", "", "folder for processor profiles of Nomad's server during bursts and crowds, for go tool pprof")
	flag.Parse()
	command.Main("scale", func(ctx context.Context) error { return run(ctx, o) })
}

func run(ctx context.Context, o options) error {
	if o.From != "" {
		return o.reshow()
	}
	rep := &report{Provenance: command.NewProvenance("scale")}
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
	return o.Show(rep)
}

// bed is a server with simulated nodes, or with real clients.
type bed struct {
	*cluster.Cluster
	api   *api.Client
	agent *api.Client // the placer's, as Nomad's
	o     options
	nodes int
	sim   *exec.Cmd
	dir   string
	// program is a new task of a job.
	program func() *api.Task
}

func (o options) start(ctx context.Context, nodes int) (b *bed, err error) {
	dir, err := os.MkdirTemp("", "pal")
	if err != nil {
		return nil, err
	}
	b = &bed{o: o, nodes: nodes, dir: dir, program: func() *api.Task {
		return api.NewTask("rank", "raw_exec").SetConfig("command", "/bin/true")
	}}
	b.Cluster, err = cluster.Start(ctx, cluster.Options{Nomad: o.nomad, Dir: dir, HeartbeatTTL: time.Hour, ServerHCL: o.serverHCL(), Progress: say})
	if err != nil {
		return nil, err
	}
	if b.api, err = connect(b.Servers()[0].HTTPAddr()); err != nil {
		return nil, errors.Join(err, b.close())
	}
	if err := b.simulate(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	if err := b.use(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("an allocation on every node: %w", err), b.close())
	}
	return b, nil
}

// connect makes a client as the placer does, which asks for no compression. That would
// take a good part of the server's time.
func connect(url string) (*api.Client, error) {
	c, err := nomad.NewClient(&api.Config{Address: url}, "")
	if err != nil {
		return nil, err
	}
	return c.API(), nil
}

func say(line string) { fmt.Fprintln(os.Stderr, " ", line) }

// rack is the number of nodes of a rack.
const rack = 16

// simulate starts the nodes and waits until all are registered.
func (b *bed) simulate(ctx context.Context) error {
	b.sim = exec.CommandContext(ctx, filepath.Join(b.o.bin, "simnodes"), "-server", b.Servers()[0].RPCAddr(), "-nodes", strconv.Itoa(b.nodes), "-gpus", "8", "-rack", strconv.Itoa(rack))
	b.sim.Env = append(os.Environ(), b.Env()...)
	b.sim.Cancel = func() error { return b.sim.Process.Signal(syscall.SIGTERM) }
	b.sim.WaitDelay = 10 * time.Second
	b.sim.Stderr = os.Stderr
	out, err := b.sim.StdoutPipe()
	if err != nil {
		return err
	}
	if err := b.sim.Start(); err != nil {
		return fmt.Errorf("start simnodes: %w", err)
	}
	began := time.Now()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var l struct {
			Phase      string
			Registered int
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("read simnodes: %w", err)
		}
		if l.Registered >= b.nodes {
			say(fmt.Sprintf("%d nodes registered in %.1f s", b.nodes, time.Since(began).Seconds()))
			go func() { // until simnodes ends: close kills and waits for it
				for lines.Scan() {
				}
			}()
			return nil
		}
	}
	return fmt.Errorf("simnodes ended: %w", b.sim.Wait())
}

func (b *bed) close() error {
	if b.sim != nil && b.sim.Process != nil {
		_ = b.sim.Process.Kill()
		_ = b.sim.Wait()
	}
	return errors.Join(b.Close(), os.RemoveAll(b.dir))
}

// startPlacer runs the agent until it says where its API is; stop ends it.
func (b *bed) startPlacer(ctx context.Context) (pid int, stop func(), err error) {
	p, err := replay.StartPlacer(ctx, b.o.bin, b.dir, b.Env(), "http {\n  bind_port = 0\n  register = true\n}\n")
	if err != nil {
		return 0, nil, err
	}
	url, err := p.URL(ctx)
	if err == nil {
		b.agent, err = connect(url)
	}
	if err != nil {
		p.Stop()
		return 0, nil, err
	}
	return p.PID(), p.Stop, nil
}
