// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// row is a run with its cell, as it is written.
type row struct {
	cell
	run
}

// ran is what tells runs apart.
type ran struct {
	cell
	policy string
}

// kept reads the runs that the file has. What an interrupted write left behind is not
// one.
func kept(path string) (map[ran]run, error) {
	had := map[ran]run{}
	f, err := os.Open(path)
	if path == "" || errors.Is(err, fs.ErrNotExist) {
		return had, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r row
		if json.Unmarshal(lines.Bytes(), &r) == nil {
			had[ran{r.cell, r.Policy}] = r.run
		}
	}
	return had, nil
}

// keep appends to the file of the runs; "" keeps nothing.
func (o options) keep() (io.WriteCloser, error) {
	return os.OpenFile(cmp.Or(o.runs, os.DevNull), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
}

// measure runs all policies on all cells, a few at a time, the cells with the fewest jobs
// first, and writes the tables of the cells that are whole each time one more is.
func (o options) measure(r report) error {
	had, err := kept(o.runs)
	if err != nil {
		return err
	}
	file, err := o.keep()
	if err != nil {
		return err
	}
	defer file.Close()
	all, ps := r.cells, policies()
	r.of = len(all)
	var mu sync.Mutex // of what follows
	left, done := map[*result]int{}, 0
	count := func(c *result, known bool) error { // one more of the cell's runs is done
		done++
		if left[c]--; left[c] > 0 || known {
			return nil
		}
		r.cells = slices.DeleteFunc(slices.Clone(all), func(c *result) bool { return left[c] > 0 })
		return o.write(r)
	}
	for _, c := range all {
		c.Runs, left[c] = make([]run, len(ps)), len(ps)
	}
	g, ctx := errgroup.WithContext(context.Background())
	g.SetLimit(o.workers)
	for _, c := range slices.SortedStableFunc(slices.Values(all), func(a, b *result) int { return a.Jobs - b.Jobs }) {
		for i, p := range ps {
			g.Go(func() error {
				if ctx.Err() != nil { // another run failed
					return nil
				}
				one, known := had[ran{c.cell, p.name}]
				began := time.Now()
				if !known {
					var err error
					if one, err = c.run(p); err != nil {
						return fmt.Errorf("%s, policy %s: %w", c, p.name, err)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				c.Runs[i] = one
				if !known {
					fmt.Fprintf(os.Stderr, "%d of %d: %s, %s: %.1f s\n", done+1, len(all)*len(ps), c, p.name, time.Since(began).Seconds())
					if err := json.NewEncoder(file).Encode(row{c.cell, one}); err != nil {
						return err
					}
				}
				return count(c, known)
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	r.cells = all
	return o.write(r)
}

// write writes the results and the tables.
func (o options) write(r report) error {
	if err := write(o.json, r.json); err != nil {
		return err
	}
	return write(o.tables, r.markdown)
}
