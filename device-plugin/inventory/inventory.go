// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package inventory writes inventory files for the emulated backend: clusters
// of GPUs that vary as real ones do.
package inventory

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"github.com/nomad-pal/nomad-pal/sim/paldata"
	"github.com/nomad-pal/nomad-pal/sim/population"
)

// Synopsis and Help describe the subcommand.
const (
	Synopsis = "Write inventory files of emulated GPUs that vary as real ones do"
	Help     = `Usage: nomad-device-pal inventory [options]

  Draws a cluster from the measured variability of a real one and writes one
  inventory file per node for the plugin's emulated backend. The same options
  give the same files.

  -cluster=NAME     longhorn (V100, default), frontera (RTX 5000), lonestar6 (A100).
  -nodes=N          Nodes (default 1).
  -gpus=N           GPUs per node (default 4).
  -seed=N           Seed of the draw (default 1).
  -outliers=WHICH   none (default), measured (as many as were measured), or a number.
  -correlation=R    Correlation of a GPU's ranks in two application classes, 0 to 1
                    (default 0, as in PAL).
  -island=N         GPUs joined by NVLink (default: all of a node).
  -data=DIR         Directory with the original measurements, instead of the tables
                    of quantiles in this program (default: $PAL_DATA).
  -out=DIR          Write node-00.hcl, node-01.hcl … there; without it, one node's
                    file goes to standard output.
`
)

// Run is the subcommand; it returns the exit code.
func Run(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("inventory", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	s := population.Spec{}
	fs.StringVar(&s.Cluster, "cluster", "longhorn", "")
	fs.IntVar(&s.Nodes, "nodes", 1, "")
	fs.IntVar(&s.GPUsPerNode, "gpus", 4, "")
	fs.Float64Var(&s.Correlation, "correlation", 0, "")
	fs.IntVar(&s.IslandGPUs, "island", 0, "")
	seed := fs.Uint64("seed", 1, "")
	outliers := fs.String("outliers", "none", "")
	data := fs.String("data", paldata.Dir(), "")
	out := fs.String("out", "", "")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(stdout, Help)
			return 0
		}
		fmt.Fprintf(stderr, "inventory: %v\n", err)
		return 2
	}
	if fs.NArg() > 0 {
		fmt.Fprintf(stderr, "inventory: argument %q is not wanted\n", fs.Arg(0))
		return 2
	}
	if err := generate(s, *seed, *outliers, *data, *out, stdout); err != nil {
		fmt.Fprintf(stderr, "inventory: %v\n", err)
		return 1
	}
	return 0
}

func generate(s population.Spec, seed uint64, outliers, data, out string, stdout io.Writer) error {
	var err error
	if s.Outliers, err = parseOutliers(outliers); err != nil {
		return err
	}
	if data != "" {
		if s.Tables, err = paldata.Tables(data); err != nil {
			return err
		}
	}
	gpus, err := population.Draw(s, rand.New(rand.NewPCG(seed, 0)))
	if err != nil {
		return err
	}
	if out == "" {
		if s.Nodes > 1 {
			return fmt.Errorf("%d nodes need -out=DIR", s.Nodes)
		}
		_, err := io.WriteString(stdout, population.Inventory(gpus))
		return err
	}
	return write(out, gpus, s.GPUsPerNode, stdout)
}

// write makes one file per node.
func write(dir string, gpus []population.GPU, perNode int, stdout io.Writer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("writing inventories: %w", err)
	}
	for len(gpus) > 0 {
		path := filepath.Join(dir, fmt.Sprintf("node-%02d.hcl", gpus[0].Node))
		if err := os.WriteFile(path, []byte(population.Inventory(gpus[:perNode])), 0o644); err != nil {
			return fmt.Errorf("writing inventory: %w", err)
		}
		fmt.Fprintln(stdout, path)
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
		return population.Outliers{}, fmt.Errorf("-outliers %q is not none, measured or a number", s)
	}
	return population.Exactly(n), nil
}
