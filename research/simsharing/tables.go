// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

const head = `# The right neighbour on a GPU

Written by %s on %s. The jobs come from four virtual clusters of Philly, and run Gavel's applications. The cluster has %d GPUs (%s) in nodes
of %d. [Gavel measured](neighbours.md) pairs of single-GPU jobs that share a GPU, but no gangs. These simulations assume that a gang is as fast as its slowest member.
Each further seed shuffles the applications among the jobs. All simulations use nomad-pal's queue, and no job has an estimate of its run time. A stopped gang loses %d s.

* **exclusive**: one job per GPU. Load 100 %% is the cluster's capacity without sharing.
* **random neighbours**: %d parts per GPU; a job takes an idle GPU if one exists, else any free part.
* **refusing nobody**: ours with refuse_bad_neighbours = false. A job takes the best free part, however bad. The table of the
  four classes, and the finished runs of the job's name, determine which part is best.
* **ours**: like refusing nobody, but a job that is not overdue leaves a part free if the job would do less work on this part than its neighbours would lose.
* **own runs known**: ours, but the mean values of the measured pairs (application and class) replace the table. Finished runs
  can never provide more information than these mean values.
* **wrong classes**: ours, but each job has a random class.
* **exact pairs**: ours, with the measured pairs instead of classes. This policy is greedy, so better policies are possible.
* **floor**: the average run time without neighbours and without waits. The closer exclusive use is to the floor, the less sharing can gain.

A job that leaves no memory for another job asks for all parts of its GPU.

**Refused pairs**, according to the table, are A beside A, B or C, and C beside C. On one GPU, two jobs of a refused pair do less work together than one job alone. Jobs without a class
count as B and share with each other. A refused job blocks the jobs behind it like any job that does not fit.

**Class A** shares only with class D, so its jobs wait longer. If other jobs may be stopped for jobs of class A, the jobs of class A finish sooner than
with exclusive use. We also tried [other rules](studies.md#refusing-bad-neighbours).

**Finished runs** have little weight here. A job's application comes from Gavel, but its length comes from an unrelated job on Philly. So the run
times of one name and size vary widely (one standard deviation is a factor of 3 to 8), and predict the effect of neighbours less well than the table.
Run times of jobs with the same name get more weight the less they vary.
`

func page(cells []*cell, gpu string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, head, "`make sim-sharing`", time.Now().UTC().Format(time.DateOnly), gpus, gpu, nodeGPUs, restartS, parts)
	for _, chosen := range []bool{true, false} {
		title := "Virtual clusters not used to choose the rules"
		if chosen {
			title = "Virtual clusters used to choose the rules"
		}
		fmt.Fprintf(&b, "\n## %s\n", title)
		verdict(&b, cells, chosen)
		summary(&b, cells, chosen)
		each(&b, cells, chosen)
	}
	return b.Bytes()
}

// over is the geometric mean, over cells, of a policy's average completion time relative to that of
// another policy.
func over(cells []*cell, policy, other string, of func(*cell) bool) float64 {
	sum, n := 0.0, 0.0
	for _, c := range cells {
		if of(c) {
			sum, n = sum+math.Log(c.runs[policy].avgJCT/c.runs[other].avgJCT), n+1
		}
	}
	return math.Exp(sum / n)
}

// classOver is the geometric mean of a policy's average completion times for the jobs of one class,
// relative to exclusive use.
func classOver(cells []*cell, policy string, class pal.AppClass, of func(*cell) bool) float64 {
	sum, n := 0.0, 0.0
	for _, c := range cells {
		if of(c) && c.runs[exclusive].byClass[class] > 0 {
			sum, n = sum+math.Log(c.runs[policy].byClass[class]/c.runs[exclusive].byClass[class]), n+1
		}
	}
	return math.Exp(sum / n)
}

// floor is the average run time without neighbours, relative to the average completion time under
// exclusive use.
func floor(cells []*cell, of func(*cell) bool) float64 {
	sum, n := 0.0, 0.0
	for _, c := range cells {
		if !of(c) {
			continue
		}
		work := 0.0
		for _, j := range c.jobs {
			work += j.WorkS() / float64(len(c.jobs))
		}
		sum, n = sum+math.Log(work/c.runs[exclusive].avgJCT), n+1
	}
	return math.Exp(sum / n)
}

// verdict compares the results with the targets.
func verdict(b *bytes.Buffer, cells []*cell, chosen bool) {
	all := func(c *cell) bool { return c.chosen == chosen }
	worst, seeds := 0.0, uint64(0)
	for _, c := range cells {
		seeds = max(seeds, c.seed+1)
		of := func(o *cell) bool { return all(o) && o.load == c.load && o.preempts == c.preempts }
		for _, class := range pal.AppClasses() {
			worst = max(worst, classOver(cells, ours, class, of))
		}
	}
	fmt.Fprintf(b, "\nOver all cells with %d seeds, our average completion time is %.2f times that of exclusive use (target 0.80; refusing\nnobody %.2f, own runs known %.2f, exact pairs %.2f), and %.2f times that of random neighbours (target 0.90; exact pairs\n%.2f). In the first table, our highest average for a class is %.2f (target 1.10).\n",
		seeds, over(cells, ours, exclusive, all), over(cells, accepting, exclusive, all), over(cells, rows, exclusive, all), over(cells, exact, exclusive, all), over(cells, ours, random, all), over(cells, exact, random, all), worst)
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// summary writes the geometric means over clusters and seeds.
func summary(b *bytes.Buffer, cells []*cell, chosen bool) {
	b.WriteString("\nAverage completion time relative to exclusive use, geometric mean over clusters and seeds:\n\n| load | gangs may be stopped | random neighbours | refusing nobody | wrong classes | ours | own runs known | exact pairs | floor | ours over random | exact pairs over random | ours by class: A, B, C, D |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, load := range append(loads, 0) {
		for _, preempts := range []bool{false, true} {
			of := func(c *cell) bool { return c.chosen == chosen && c.load == load && c.preempts == preempts }
			at := fmt.Sprintf("%.0f %% | %s", 100*load, yes(preempts))
			if load == 0 {
				if preempts {
					continue
				}
				at, of = "all | both", func(c *cell) bool { return c.chosen == chosen }
			}
			fmt.Fprintf(b, "| %s |", at)
			for _, policy := range []string{random, accepting, wrong, ours, rows, exact} {
				fmt.Fprintf(b, " %.2f |", over(cells, policy, exclusive, of))
			}
			fmt.Fprintf(b, " %.2f | %.2f | %.2f |", floor(cells, of), over(cells, ours, random, of), over(cells, exact, random, of))
			classes(b, cells, of)
		}
	}
}

func classes(b *bytes.Buffer, cells []*cell, of func(*cell) bool) {
	sep := " "
	for _, class := range pal.AppClasses() {
		fmt.Fprintf(b, "%s%.2f", sep, classOver(cells, ours, class, of))
		sep = ", "
	}
	b.WriteString(" |\n")
}

// each writes a line per cell, with seeds combined.
func each(b *bytes.Buffer, cells []*cell, chosen bool) {
	b.WriteString("\nBy virtual cluster, geometric mean over seeds:\n\n| cluster | load | gangs may be stopped | random neighbours | ours | exact pairs | floor | ours over random | ours by class: A, B, C, D |\n|---|---|---|---|---|---|---|---|---|\n")
	seen := map[string]bool{}
	for _, c := range cells {
		at := fmt.Sprintf("%s | %.0f %% | %s", c.vc, 100*c.load, yes(c.preempts))
		if c.chosen != chosen || seen[at] {
			continue
		}
		seen[at] = true
		of := func(o *cell) bool { return o.vc == c.vc && o.load == c.load && o.preempts == c.preempts }
		fmt.Fprintf(b, "| %s |", at)
		for _, policy := range []string{random, ours, exact} {
			fmt.Fprintf(b, " %.2f |", over(cells, policy, exclusive, of))
		}
		fmt.Fprintf(b, " %.2f | %.2f |", floor(cells, of), over(cells, ours, random, of))
		classes(b, cells, of)
	}
}
