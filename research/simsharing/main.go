// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command simsharing makes the table of what neighbours on a GPU cost each other, and compares
// ways to choose neighbours, with published measurements of pairs.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/nomad-pal/nomad-pal/bench/paldata"
)

func main() {
	table := flag.Bool("table", false, "write the table of neighbours, without simulations")
	only := flag.String("only", "", "run only virtual clusters whose name matches")
	gpu := flag.String("gpu", fittedOn, "the GPU model of the clusters")
	seeds := flag.Uint64("seeds", 3, "runs of each cell: the first uses the trace as it is, the others shuffle the applications of its jobs")
	md := flag.String("md", "", "write the page to `FILE`")
	workers := flag.Int("workers", runtime.NumCPU(), "number of cells at a time")
	flag.Parse()
	page, csv, err := run(*table, *only, *gpu, *seeds, *workers)
	if err == nil && *md != "" {
		err = os.WriteFile(*md, page, 0o644)
		if err == nil && csv != nil {
			err = os.WriteFile(strings.TrimSuffix(*md, ".md")+".csv", csv, 0o644)
		}
	} else if err == nil {
		_, err = os.Stdout.Write(page)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "simsharing:", err)
		os.Exit(1)
	}
}

func run(table bool, only, gpu string, seeds uint64, workers int) (text, csv []byte, err error) {
	dir := filepath.Join(paldata.Dir(), "gavel")
	pairs, err := ReadPairs(filepath.Join(dir, "pairs.csv"))
	if err != nil {
		return nil, nil, err
	}
	if table {
		return neighbours(pairs), rates(pairs), nil
	}
	match, err := regexp.Compile(only)
	if err != nil {
		return nil, nil, err
	}
	var cells []*cell
	for i, vc := range virtualClusters {
		if !match.MatchString(vc) {
			continue
		}
		cs, err := cellsOf(dir, vc, gpu, i < chosen, seeds, pairs)
		if err != nil {
			return nil, nil, err
		}
		cells = append(cells, cs...)
	}
	var g errgroup.Group
	g.SetLimit(workers)
	for _, c := range cells {
		g.Go(c.play)
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	return page(cells, gpu), nil, nil
}
