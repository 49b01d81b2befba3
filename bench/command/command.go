// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package command is what the commands of bench that run real clusters have in
// common.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Options are what each command takes that runs a cluster of one kind.
type Options struct {
	Nomad, Bin, JSON string
	Nodes            int
	Seed             uint64
}

// Flags defines the flags, with the number of nodes, the result file, and what nodes and seed mean.
func (o *Options) Flags(nodes int, json, ofNodes, ofSeed string) {
	flag.StringVar(&o.Nomad, "nomad", "", "nomad binary")
	flag.StringVar(&o.Bin, "bin", "build/bin", "folder of our binaries")
	flag.StringVar(&o.JSON, "json", json, "result file; empty: none")
	flag.IntVar(&o.Nodes, "nodes", nodes, "clients, of 4 GPUs each"+ofNodes)
	flag.Uint64Var(&o.Seed, "seed", 1, "seed of "+ofSeed)
}

// Main runs a command until it ends or is interrupted, and exits: 0, 1 after an
// error, 130 when interrupted. run gives back all that it started before it
// returns.
func Main(name string, run func(context.Context) error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	interrupted := ctx.Err() != nil
	cancel()
	if said, code := ending(err, interrupted); code != 0 {
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, said)
		os.Exit(code)
	}
}

// ending is what is said of a command that has ended so, and its exit status. That all
// has been stopped is said only of a command that ran into no other trouble than being
// interrupted.
func ending(err error, interrupted bool) (said string, code int) {
	switch {
	case interrupted && (err == nil || errors.Is(err, context.Canceled)):
		return "interrupted; everything it started has been stopped", 130
	case interrupted:
		return fmt.Sprintf("interrupted: %v; see whether something still runs", err), 130
	case err != nil:
		return err.Error(), 1
	}
	return "", 0
}
