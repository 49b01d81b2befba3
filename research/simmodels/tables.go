// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"fmt"
	"math"
	"time"
)

const head = `# The right GPU model for each application

Written by %s on %s. Speeds were measured by others: Gavel's (steps a second on V100, P100 and K80; 32 GPUs of each, the
jobs of four virtual clusters of Philly as they come) and Sia's (six kinds of GPU, 16 of each; jobs of our own). Nodes have 8
GPUs of one model; GPUs of a model are alike. Nobody says how long jobs run. A stopped gang loses %d s.

* **agnostic**: the queue as it ships, where nothing is known of speeds.
* **fastest first**: the same, but each gang prefers the fastest model on which it fits now.
* **ours**: the queue as it ships, with speeds.
* **bound**: no policy's average is below it, whatever it knows. It is loose where jobs come in bursts: it shares GPUs in
  fractions, knows all run times, and has no gangs.

Load 100 %% is what a linear program (Gavel's most throughput) says that the cluster can do of these jobs over the time in which
they come. Completion times are averages, in hours. Slowdown is completion time over run time on the fastest model; p99.

The rule was chosen by two workloads. It was looked at on the others while it was made, with one seed, so these are not held
out in the strict sense.
`

// tables are the results.
func tables(cells []*cell) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, head, "`make sim-models`", time.Now().UTC().Format(time.DateOnly), restartS)
	for _, chosen := range []bool{true, false} {
		title := "Workloads that rules were not chosen by"
		if chosen {
			title = "Workloads that rules were chosen by"
		}
		fmt.Fprintf(&b, "\n## %s\n\n| workload | load | gangs may be stopped | bound | agnostic | fastest first | ours | ours over agnostic | over the better | over bound | p99 slowdown: agnostic, fastest first, ours | makespan: agnostic, fastest first, ours |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n", title)
		for _, c := range cells {
			if c.Chosen == chosen && len(c.Runs) == 3 {
				c.line(&b)
			}
		}
		fmt.Fprintf(&b, "\nOurs over the other, geometric mean of the average:\n\n| load | gangs may be stopped | over agnostic | over fastest first | over bound |\n|---|---|---|---|---|\n")
		for _, preempts := range []bool{false, true} {
			for _, load := range loads {
				means(&b, cells, func(c *cell) bool {
					return c.Chosen == chosen && c.Load == load && c.Preempts == preempts && len(c.Runs) == 3
				})
			}
		}
	}
	fmt.Fprintf(&b, reach, 100*loads[0])
	for _, c := range cells {
		if c.Clairvoyant > 0 && len(c.Runs) == 3 {
			fmt.Fprintf(&b, "| %s | %s | %.2f | %.2f | %.2f | %.2f | %.2f |\n", c.Workload, yes(c.Preempts), c.Runs[0].AvgJCT/c.Bound, c.Runs[1].AvgJCT/c.Bound,
				c.Runs[2].AvgJCT/c.Bound, c.Told.AvgJCT/c.Bound, c.Clairvoyant/c.Bound)
		}
	}
	b.WriteString(fairness)
	for i, c := range cells {
		if c.Fair > 0 && !c.Preempts && i+1 < len(cells) && len(c.Runs) == 3 {
			keep, stop := c.Runs[2].AvgJCT, cells[i+1].Runs[2].AvgJCT
			fmt.Fprintf(&b, "| %s | %.0f %% | %.1f | %.1f | %.1f | %.1f | %.2f | %.2f | %.2f |\n", c.Workload, 100*c.Load, c.Bound/3600, c.Fair/3600, keep/3600, stop/3600, c.Fair/c.Bound, keep/c.Fair, stop/c.Fair)
		}
	}
	return b.Bytes()
}

const fairness = `
## Gavel's finish-time fairness

Gavel's policy of finish-time fairness, played as a fluid: whenever a job comes or ends, GPUs are shared anew so that the greatest
ratio of a job's finish time to the one that it would have with its n-th of each model is the least. It is told run times, shares
GPUs in any fractions, has no gangs, and stops and moves jobs for nothing. No scheduler can do all that; ours is told none of it.
It is solved for three models. Averages in hours.

| workload | load | bound | fair | ours | ours, gangs may be stopped | fair over bound | ours over fair | the same, gangs may be stopped |
|---|---|---|---|---|---|---|---|---|
`

const reach = `
## What is in reach at %.0f %%

Average over bound. **Told**: ours, where run times are told exactly. **Clairvoyant**: it knows all run times, stops, starts and moves
gangs for nothing, and runs the least remaining GPU time first. Where it is far above the bound, gangs are: the bound has none.

| workload | gangs may be stopped | agnostic | fastest first | ours | told | clairvoyant |
|---|---|---|---|---|---|---|
`

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

func (c *cell) line(b *bytes.Buffer) {
	a, f, o := c.Runs[0], c.Runs[1], c.Runs[2]
	fmt.Fprintf(b, "| %s | %.0f %% | %s | %.1f | %.1f | %.1f | %.1f | %.2f | %.2f | %.2f | %.0f, %.0f, %.0f | %.0f, %.0f, %.0f |\n", c.Workload, 100*c.Load, yes(c.Preempts), c.Bound/3600,
		a.AvgJCT/3600, f.AvgJCT/3600, o.AvgJCT/3600, o.AvgJCT/a.AvgJCT, o.AvgJCT/min(a.AvgJCT, f.AvgJCT), o.AvgJCT/c.Bound, a.P99, f.P99, o.P99, a.Makespan/3600, f.Makespan/3600, o.Makespan/3600)
}

// means is a line of geometric means over the cells that are of it.
func means(b *bytes.Buffer, cells []*cell, of func(*cell) bool) {
	var sums [3]float64
	n, load, preempts := 0.0, 0.0, false
	for _, c := range cells {
		if !of(c) {
			continue
		}
		o := c.Runs[2].AvgJCT
		for i, other := range []float64{c.Runs[0].AvgJCT, c.Runs[1].AvgJCT, c.Bound} {
			sums[i] += math.Log(o / other)
		}
		n, load, preempts = n+1, c.Load, c.Preempts
	}
	if n > 0 {
		fmt.Fprintf(b, "| %.0f %% | %s | %.2f | %.2f | %.2f |\n", 100*load, yes(preempts), math.Exp(sums[0]/n), math.Exp(sums[1]/n), math.Exp(sums[2]/n))
	}
}
