// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command simulate is `nomad-pal simulate` with what only studies need: it also reads published
// traces, and has more policies to compare with.
package main

import (
	"errors"
	"os"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/research/baselines"
	"github.com/nomad-pal/nomad-pal/research/published"
	"github.com/nomad-pal/nomad-pal/sim/simulate"
)

func command() simulate.Command {
	return simulate.Command{ReadTrace: published.ReadFile, Policies: baselines.More(), Past: func(string) ([]palapi.Run, error) {
		return nil, errors.New("this program asks no agent; use nomad-pal simulate -from-history")
	}}
}

func main() { os.Exit(command().Run(os.Args[1:], os.Stdout, os.Stderr)) }
