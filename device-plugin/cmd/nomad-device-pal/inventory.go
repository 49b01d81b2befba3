// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hashicorp/cli"

	"github.com/nomad-pal/nomad-pal/sim/population"
)

// inventoryCommand writes inventory files for the emulated backend: random clusters whose GPUs vary
// as real GPUs do.
func inventoryCommand(ui cli.Ui) *command {
	return &command{
		synopsis: "Write inventory files of emulated GPUs that vary as real ones do",
		help: `Usage: nomad-device-pal inventory [options]

  Draws a cluster of GPUs from the measured variability of a real cluster, and
  writes one inventory file per node for the plugin's emulated backend. The same
  options give the same files.

  -cluster=NAME     longhorn (V100, default), frontera (RTX 5000), lonestar6 (A100).
  -nodes=N          Nodes (default 1).
  -gpus=N           GPUs per node (default 4).
  -seed=N           Seed of the draw (default 1).
  -outliers=WHICH   none (default), measured (as many as were measured), or a number.
  -correlation=R    Correlation of a GPU's ranks in two application classes, 0 to 1
                    (default 0, as in PAL).
  -island=N         GPUs joined by NVLink (default: all of a node).
  -out=DIR          Write node-00.hcl, node-01.hcl … into this directory. Without
                    -out, the file of a single node goes to standard output.
`,
		run: func(args []string) int { return writeInventory(ui, args) },
	}
}

func writeInventory(ui cli.Ui, args []string) int {
	fs := flag.NewFlagSet("inventory", flag.ContinueOnError)
	s := population.Spec{}
	fs.StringVar(&s.Cluster, "cluster", "longhorn", "")
	fs.IntVar(&s.Nodes, "nodes", 1, "")
	fs.IntVar(&s.GPUsPerNode, "gpus", 4, "")
	fs.Float64Var(&s.Correlation, "correlation", 0, "")
	fs.IntVar(&s.IslandGPUs, "island", 0, "")
	seed := fs.Uint64("seed", 1, "")
	outliers := fs.String("outliers", "none", "")
	out := fs.String("out", "", "")
	if code, ok := parseFlags(ui, fs, args); !ok {
		return code
	}
	if fs.NArg() > 0 {
		ui.Error(fmt.Sprintf("inventory: unexpected argument %q", fs.Arg(0)))
		return 2
	}
	if err := generate(ui, s, *seed, *outliers, *out); err != nil {
		return fail(ui, "inventory", err)
	}
	return 0
}

func generate(ui cli.Ui, s population.Spec, seed uint64, outliers, out string) error {
	var err error
	if s.Outliers, err = parseOutliers(outliers); err != nil {
		return err
	}
	gpus, err := population.Draw(s, rand.New(rand.NewPCG(seed, 0)))
	if err != nil {
		return err
	}
	if out == "" {
		if s.Nodes > 1 {
			return fmt.Errorf("%d nodes need -out=DIR", s.Nodes)
		}
		ui.Output(strings.TrimSuffix(population.Inventory(gpus), "\n"))
		return nil
	}
	return write(ui, out, gpus, s.GPUsPerNode)
}

// write writes one file per node.
func write(ui cli.Ui, dir string, gpus []population.GPU, perNode int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("writing inventories: %w", err)
	}
	for len(gpus) > 0 {
		path := filepath.Join(dir, fmt.Sprintf("node-%02d.hcl", gpus[0].Node))
		if err := os.WriteFile(path, []byte(population.Inventory(gpus[:perNode])), 0o644); err != nil {
			return fmt.Errorf("writing inventory: %w", err)
		}
		ui.Output(path)
		gpus = gpus[perNode:]
	}
	return nil
}

func parseOutliers(s string) (population.Outliers, error) {
	switch s {
	case "none":
		return population.Outliers{}, nil
	case "measured":
		return population.AsMeasured(), nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return population.Outliers{}, fmt.Errorf("-outliers %q: must be none, measured or a number", s)
	}
	return population.Exactly(n), nil
}
