// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command simnodes simulates thousands of Nomad clients with GPUs for a real server, in one
// process. It registers nodes over the server's RPC and heartbeats for them. It accepts the
// server's allocations and reports them as running and, after the time in the job's meta, as
// complete. It executes nothing.
//
//	simnodes -server 127.0.0.1:4647 -nodes 1000 -gpus 8 -seed 1
//
// The key sim_seconds in the meta of a job or group sets how long its allocations run, for example
// "2.5". Without this key, allocations run until they are stopped. Progress and the final counts
// are lines of JSON on standard output.
//
// simnodes is a separate module because it needs packages of Nomad that are under the BUSL. It is a
// tool for benchmarks, and not part of nomad-pal's releases.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "simnodes: %v\n", err)
		os.Exit(1)
	}
}

type options struct {
	server   string
	generate generate
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("simnodes", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.server, "server", "127.0.0.1:4647", "RPC `address` of a Nomad server without TLS")
	f.IntVar(&o.generate.nodes, "nodes", 100, "nodes to generate")
	f.IntVar(&o.generate.gpus, "gpus", 8, "GPUs per generated node")
	f.Int64Var(&o.generate.seed, "seed", 1, "random seed of the generated nodes' ids and GPU speeds")
	f.IntVar(&o.generate.rack, "rack", 0, "generated nodes per rack (node meta rack); 0: no racks")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.generate.gpus < 0, o.generate.rack < 0:
		return o, errors.New("-gpus and -rack cannot be negative")
	case o.generate.nodes < 1:
		return o, fmt.Errorf("-nodes %d: at least one node is needed", o.generate.nodes)
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	return play(ctx, o.server, o.generate.all(), stdout)
}
