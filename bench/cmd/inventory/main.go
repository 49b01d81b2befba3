// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command inventory writes inventory files for the plugin's emulated backend: clusters of GPUs that
// vary as real ones do. The same options give the same files.
package main

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"github.com/nomad-pal/nomad-pal/bench/inventory"
	"github.com/nomad-pal/nomad-pal/sim/population"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "inventory:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, args []string) error {
	fs := flag.NewFlagSet("inventory", flag.ExitOnError)
	s := population.Spec{}
	fs.StringVar(&s.Cluster, "cluster", "longhorn", "cluster whose measured variability to use: longhorn (V100), frontera (RTX 5000) or lonestar6 (A100)")
	fs.IntVar(&s.Nodes, "nodes", 1, "`number` of nodes")
	fs.IntVar(&s.GPUsPerNode, "gpus", 4, "`number` of GPUs per node")
	fs.Float64Var(&s.Correlation, "correlation", 0, "correlation of a GPU's ranks in two application classes, 0 to 1 (in PAL: 0)")
	fs.IntVar(&s.IslandGPUs, "island", 0, "`number` of GPUs joined by NVLink (default all of a node)")
	seed := fs.Uint64("seed", 1, "seed of the draw")
	outliers := fs.String("outliers", "none", "number of outlier GPUs: none, measured (as many as were measured) or a number")
	out := fs.String("out", "", "write node-00.hcl, node-01.hcl … into this `directory` (default: one node to standard output)")
	_ = fs.Parse(args) // exits on an error
	var err error
	if s.Outliers, err = parseOutliers(*outliers); err != nil {
		return err
	}
	gpus, err := population.Draw(s, rand.New(rand.NewPCG(*seed, 0)))
	switch {
	case err != nil:
		return err
	case *out != "":
		return write(w, *out, gpus, s.GPUsPerNode)
	case s.Nodes > 1:
		return fmt.Errorf("%d nodes need -out=DIR", s.Nodes)
	}
	_, err = io.WriteString(w, inventory.File(gpus))
	return err
}

// write makes one file per node.
func write(w io.Writer, dir string, gpus []population.GPU, perNode int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("writing inventories: %w", err)
	}
	for len(gpus) > 0 {
		path := filepath.Join(dir, fmt.Sprintf("node-%02d.hcl", gpus[0].Node))
		if err := os.WriteFile(path, []byte(inventory.File(gpus[:perNode])), 0o644); err != nil {
			return fmt.Errorf("writing inventory: %w", err)
		}
		fmt.Fprintln(w, path)
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
