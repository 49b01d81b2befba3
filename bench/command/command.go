// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package command has code that all bench commands on real clusters share: common flags, result
// files with their provenance, and an exit status that distinguishes interrupts from errors.
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

// Options are the flags of commands that run one cluster.
type Options struct {
	Nomad, Bin, JSON string
	Nodes            int
	Seed             uint64
}

// Flags defines the flags. nodes and json are defaults; ofNodes and ofSeed complete the help of
// -nodes and -seed.
func (o *Options) Flags(nodes int, json, ofNodes, ofSeed string) {
	flag.StringVar(&o.Nomad, "nomad", "", "nomad binary")
	flag.StringVar(&o.Bin, "bin", "build/bin", "folder with nomad-pal's binaries")
	flag.StringVar(&o.JSON, "json", json, "result file; empty: none")
	flag.IntVar(&o.Nodes, "nodes", nodes, "clients, of 4 GPUs each"+ofNodes)
	flag.Uint64Var(&o.Seed, "seed", 1, "seed of "+ofSeed)
}

// Main runs a command until the command ends or is interrupted. Main then exits with status 0, with
// 1 after an error, or with 130 after an interrupt. Before run returns, run must stop everything
// that it has started.
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

// ending returns the message and the exit status of a command that ended with err. After an
// interrupt without other errors, the message says that everything has been stopped.
func ending(err error, interrupted bool) (said string, code int) {
	switch {
	case interrupted && (err == nil || errors.Is(err, context.Canceled)):
		return "interrupted; everything it started has been stopped", 130
	case interrupted:
		return fmt.Sprintf("interrupted: %v; some processes may still run", err), 130
	case err != nil:
		return err.Error(), 1
	}
	return "", 0
}
