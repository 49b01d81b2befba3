// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command simmodels compares ways to choose the GPU model of each job on clusters of several
// models, with published speeds.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/nomad-pal/nomad-pal/bench/paldata"
)

// loads are the loads in the tables.
var loads = []float64{0.6, 0.85, 1.1}

func main() {
	only := flag.String("only", "", "run only workloads whose name matches")
	md := flag.String("md", "", "write the tables to `FILE`, and each cell as CSV beside it")
	workers := flag.Int("workers", runtime.NumCPU(), "number of runs at a time")
	flag.Parse()
	if err := compare(*only, *md, *workers); err != nil {
		fmt.Fprintln(os.Stderr, "simmodels:", err)
		os.Exit(1)
	}
}

func compare(only, md string, workers int) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	all, err := workloads(paldata.Dir())
	if err != nil {
		return err
	}
	var cells []*cell
	var g errgroup.Group
	g.SetLimit(workers)
	for _, w := range all {
		if !match.MatchString(w.Name) {
			continue
		}
		cs, err := w.cells(loads)
		if err != nil {
			return err
		}
		for _, c := range cs {
			cells = append(cells, c)
			if c.Load == loads[0] {
				g.Go(c.reach)
			}
			if !c.Preempts {
				g.Go(c.shareFairly)
			}
			c.Runs = make([]run, 3)
			for i, policy := range []string{agnostic, fastest, ours} {
				g.Go(func() (err error) {
					c.Runs[i], err = c.run(policy)
					return err
				})
			}
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	text := tables(cells)
	if md == "" {
		_, err := os.Stdout.Write(text)
		return err
	}
	if err := os.WriteFile(strings.TrimSuffix(md, ".md")+".csv", rows(cells), 0o644); err != nil {
		return err
	}
	return os.WriteFile(md, text, 0o644)
}
