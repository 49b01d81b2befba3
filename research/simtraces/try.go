// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"golang.org/x/sync/errgroup"
)

// try runs the current version of one policy on the cells in o.json. For each trace and for all
// traces together, try prints the policy's figures relative to the best rival, next to the figures
// in the file.
func (o options) try(cells []*result) error {
	rows, err := o.published()
	if err != nil {
		return err
	}
	had := byRan(rows)
	i := slices.IndexFunc(policies(), func(p named) bool { return p.name == o.policy })
	if i < 0 {
		return fmt.Errorf("policy %q is unknown", o.policy)
	}
	p := policies()[i]
	for _, c := range cells {
		for _, p := range policies() {
			if r, ok := had[ran{c.cell, p.name}]; ok {
				c.Runs = append(c.Runs, r)
			}
		}
	}
	if cells = slices.DeleteFunc(cells, func(c *result) bool { return len(c.Runs) < len(policies()) }); len(cells) == 0 {
		return errors.New(o.json + " has none of these traces")
	}
	now := map[*result]*run{}
	for _, c := range cells {
		now[c] = &run{}
	}
	var g errgroup.Group
	g.SetLimit(o.workers)
	for _, c := range cells {
		g.Go(func() (err error) {
			*now[c], err = c.run(p)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	by := map[string][]*result{}
	for _, c := range cells {
		by[c.Trace], by["all"] = append(by[c.Trace], c), append(by["all"], c)
	}
	w := bufio.NewWriter(os.Stdout)
	for _, t := range slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(cmp.Compare(len(by[a]), len(by[b])), cmp.Compare(a, b)) }) {
		tried(w, t, by[t], p, now)
	}
	return w.Flush()
}

// tried writes one line: the figures of a policy's current version on some cells, and its earlier
// figures.
func tried(w io.Writer, name string, cells []*result, p named, now map[*result]*run) {
	fmt.Fprintf(w, "%-24s %3d cells", name, len(cells))
	for i, figure := range []func(run) float64{average, tail, makespan} {
		over := func(r func(*result) run) (mean, worst float64, lost int) {
			ratio := func(c *result) float64 { return figure(r(c)) / figure(least(rivals(c, p.exact), figure)) }
			for _, c := range cells {
				worst = max(worst, ratio(c))
				if ratio(c) > lossAbove[i]+0.005 {
					lost++
				}
			}
			return geomean(cells, ratio), worst, lost
		}
		mean, worst, lost := over(func(c *result) run { return *now[c] })
		wasMean, wasWorst, wasLost := over(func(c *result) run { return c.of(p.name) })
		fmt.Fprintf(w, " | %s %.3f (%.3f), worst %.2f (%.2f), lost %d (%d)", []string{"average", "p99", "makespan"}[i], mean, wasMean, worst, wasWorst, lost, wasLost)
	}
	held := func(r func(*result) run) (rate, width float64) {
		made := 0.0
		for _, c := range cells {
			n := float64(r(c).Forecasts)
			made, rate = made+n, rate+n*r(c).Hits
		}
		return rate / made, geomean(cells, func(c *result) float64 { return r(c).Width })
	}
	if slices.Contains(asked(), p.name) {
		rate, width := held(func(c *result) run { return *now[c] })
		was, wasWidth := held(func(c *result) run { return c.of(p.name) })
		fmt.Fprintf(w, " | ranges held %.1f %% (%.1f %%) of %.3g h (%.3g h)", 100*rate, 100*was, width, wasWidth)
	}
	fmt.Fprintln(w)
}
