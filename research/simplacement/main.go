// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command simplacement measures what choosing GPUs by speed is worth: placement policies under the
// same queue, on the same jobs and GPUs, in pairs. All jobs of all pairs count.
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

func main() {
	only := flag.String("only", "", "run only cells whose name matches, such as 'sia on longhorn'")
	md := flag.String("md", "", "write the page to `FILE`, and each comparison as CSV beside it")
	share := flag.Float64("share", 1, "share of the pairs to run")
	first := flag.Uint64("first", 1001, "first seed; we chose rules with the seeds up to 200")
	workers := flag.Int("workers", runtime.NumCPU(), "number of runs at a time")
	flag.Parse()
	if err := compare(*only, *md, *share, *first, *workers); err != nil {
		fmt.Fprintln(os.Stderr, "simplacement:", err)
		os.Exit(1)
	}
}

func compare(only, md string, share float64, first uint64, workers int) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	in, err := readInputs(paldata.Dir())
	if err != nil {
		return err
	}
	var cells []*cell
	for _, c := range in.cells() {
		if match.MatchString(c.name()) {
			cells = append(cells, c)
		}
	}
	for _, c := range cells {
		c.pairs = make([]pair, max(2, int(share*float64(c.of.pairs))))
		var g errgroup.Group
		g.SetLimit(workers)
		for i := range c.pairs {
			g.Go(func() (err error) {
				c.pairs[i], err = c.run(first + uint64(i))
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return fmt.Errorf("%s: %w", c.name(), err)
		}
		fmt.Fprintln(os.Stderr, c.name())
	}
	if md == "" {
		_, err := os.Stdout.Write(rows(cells))
		return err
	}
	if err := os.WriteFile(strings.TrimSuffix(md, ".md")+".csv", rows(cells), 0o644); err != nil {
		return err
	}
	return os.WriteFile(md, page(cells, in.tables != nil), 0o644)
}
