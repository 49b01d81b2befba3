// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/bench/plot"
)

// gangs has the measurements of one way to start gangs of 2 × 4 GPUs on real nodes.
type gangs struct {
	// P50 and P99 are times from a gang's submission until all its members run, for gangs submitted
	// one after the other.
	P50 float64 `json:"run_p50_ms"`
	P99 float64 `json:"run_p99_ms"`
	// PerS is the number of a burst's gangs divided by the seconds until all members of all gangs
	// run, as the median of the rounds. Low and High are the values of the slowest and the fastest
	// round.
	PerS float64 `json:"gangs_per_s"`
	Low  float64 `json:"gangs_per_s_low"`
	High float64 `json:"gangs_per_s_high"`
}

func (x *taken) gangs() *gangs {
	return &gangs{P50: percentile(x.placed, 0.5), P99: percentile(x.placed, 0.99),
		PerS: percentile(x.rates, 0.5), Low: slices.Min(x.rates), High: slices.Max(x.rates)}
}

// pacedGangs is how many gangs are submitted one after the other.
const pacedGangs = 20

// burst returns how many gangs are submitted at once: half of those that fit on the nodes.
func (o options) burst() int {
	return max(1, o.clients*gpusPerClient/(gangTasks*gangGPUs)/2)
}

// gangsRun submits gangs one after the other, each when the previous gang runs, and then a burst.
func (b *bed) gangsRun(ctx context.Context, w *watcher, h how, name string, x *taken) error {
	gang := func(id string) *api.Job { return b.gang(id, h, gangTasks, gangGPUs) }
	ran, err := b.oneByOne(ctx, name+"-paced", pacedGangs, gang, w.runs)
	if err != nil {
		return err
	}
	x.placed = append(x.placed, ran...)
	if err := b.settle(ctx); err != nil {
		return err
	}
	burst := b.o.burst()
	rate, err := b.burst(ctx, h, name+"-burst", burst, w.runs)
	if err != nil {
		return err
	}
	x.rates = append(x.rates, rate)
	return b.stopAll(ctx, name+"-burst", burst)
}

// gangTable returns a table that compares the ways to start gangs, or nil if no gangs were
// measured.
func (c *clients) gangTable() []plot.Section {
	if c.PlainGangs == nil {
		return nil
	}
	t := &plot.Table{Head: []string{"way", "one gang runs after: p50 ms", "p99 ms", "gangs/s", "least–most"}}
	for _, x := range []struct {
		name string
		*gangs
	}{{"plain", c.PlainGangs}, {"gated", c.GatedGangs}, {"Slurm", c.SlurmGangs}} {
		if x.gangs != nil {
			t.Rows = append(t.Rows, []string{x.name, fmt.Sprintf("%.0f", x.P50), fmt.Sprintf("%.0f", x.P99),
				fmt.Sprintf("%.1f", x.PerS), fmt.Sprintf("%.1f–%.1f", x.Low, x.High)})
		}
	}
	return []plot.Section{{Title: fmt.Sprintf("Gangs of %d × %d GPUs, on %d real nodes", gangTasks, gangGPUs, c.Nodes),
		Notes: []string{"Time from submission (to Nomad's API, or with sbatch) until all members run. Gangs per second: number of gangs in a burst, divided by the time until all of these gangs run."}, Table: t}}
}
