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

// row is a run with its cell, as in the files.
type row struct {
	cell
	run
}

// ran identifies a run.
type ran struct {
	cell
	policy string
}

// kept reads the runs in the file, except a line that an interrupted write left incomplete.
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

// keep opens the file of the runs for appending. If no file is named, keep discards the runs.
func (o options) keep() (io.WriteCloser, error) {
	return os.OpenFile(cmp.Or(o.runs, os.DevNull), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
}

// published returns the runs in the published results.
func (o options) published() (rows []row, err error) {
	text, err := os.ReadFile(o.json)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &rows); err != nil {
		return nil, fmt.Errorf("%s: %w", o.json, err)
	}
	return rows, nil
}

// byRan indexes runs.
func byRan(rows []row) map[ran]run {
	had := map[ran]run{}
	for _, r := range rows {
		had[ran{r.cell, r.Policy}] = r.run
	}
	return had
}

// work is one run to make: a policy on a cell.
type work struct {
	c *result
	p named
	i int // index in c.Runs
}

// plan gives each cell its known runs, and returns the runs that are not in o.runs, the cells with
// the fewest jobs first. With -again, plan returns only published runs that -again selects. Each
// keeps its published result until its new run ends.
func (o options) plan(cells []*result) (todo []work, err error) {
	had, err := kept(o.runs)
	if err != nil {
		return nil, err
	}
	was := map[ran]run{}
	if o.again != nil {
		rows, err := o.published()
		if err != nil {
			return nil, err
		}
		was = byRan(rows)
	}
	ps := policies()
	for _, c := range slices.SortedStableFunc(slices.Values(cells), func(a, b *result) int { return a.Jobs - b.Jobs }) {
		c.Runs = make([]run, len(ps))
		for i, p := range ps {
			known, ok := had[ran{c.cell, p.name}]
			if c.Runs[i] = known; ok {
				continue
			}
			published, ok := was[ran{c.cell, p.name}]
			c.Runs[i] = published
			if o.again == nil || ok && c.jobs != nil && o.again.MatchString(p.name) && o.only.MatchString(c.Trace) {
				todo = append(todo, work{c, p, i})
			}
		}
	}
	return todo, nil
}

// writeEvery is the interval at which results and tables are written. The interval is long because
// writing takes longer than a run on a small cell.
const writeEvery = 30 * time.Second

// measure makes the runs, a few at a time. From time to time, and at the end even if a run failed,
// it writes the tables of the complete cells.
func (o options) measure(r report) error {
	todo, err := o.plan(r.cells)
	if err != nil {
		return err
	}
	file, err := o.keep()
	if err != nil {
		return err
	}
	defer file.Close()
	var mu sync.Mutex // guards the variables below, and the runs of all cells
	all, done, written := r.cells, 0, time.Now()
	r.of = len(all)
	save := func() error {
		r.cells = slices.DeleteFunc(slices.Clone(all), func(c *result) bool {
			return slices.ContainsFunc(c.Runs, func(one run) bool { return one.Policy == "" })
		})
		err := o.write(r)
		written = time.Now()
		return err
	}
	g, ctx := errgroup.WithContext(context.Background())
	g.SetLimit(o.workers)
	for _, w := range todo {
		g.Go(func() error {
			if ctx.Err() != nil { // another run failed
				return nil
			}
			began := time.Now()
			one, err := w.c.run(w.p)
			if err != nil {
				return fmt.Errorf("%s, policy %s: %w", w.c, w.p.name, err)
			}
			one.Of = o.version
			mu.Lock()
			defer mu.Unlock()
			w.c.Runs[w.i] = one
			done++
			fmt.Fprintf(os.Stderr, "%d of %d: %s, %s: %.1f s\n", done, len(todo), w.c, w.p.name, time.Since(began).Seconds())
			if err := json.NewEncoder(file).Encode(row{w.c.cell, one}); err != nil {
				return err
			}
			if time.Since(written) < writeEvery {
				return nil
			}
			return save()
		})
	}
	return errors.Join(g.Wait(), save())
}

func (o options) write(r report) error {
	if err := write(o.json, r.json); err != nil {
		return err
	}
	if err := write(o.csv, r.csv); err != nil {
		return err
	}
	return write(o.tables, r.markdown)
}
