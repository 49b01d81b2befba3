// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/sim"
)

const head = `# What choosing GPUs by speed is worth

Written by %s on %s. Each pair of runs has the same jobs, the same GPUs and the agent's queue; only the placement
differs. **All jobs of all pairs count.** Figures are divided by those of *packed*, with 95 %% intervals; below 1 is better. No job has
an estimate or may be stopped. We chose the rules with other seeds.

* **packed** fills nodes; its queue avoids outliers (PM score above 1.5), as with every policy here except *blind*.
* **packed, blind** knows nothing about the speeds of GPUs: its queue does not avoid outliers either.
* **pal** is the default. **spread** and **random** are what their names say.
* **pal, sorted nodes** has the same GPUs, but somebody has sorted them before they were put into nodes: equally fast GPUs are together.
* **bound**: packed, but each gang runs as fast as on the best GPUs of an empty cluster. No policy can give all gangs the best GPUs at once,
  so the bound is out of reach.

Workloads: *sia* has 160 jobs of 1 to 48 GPUs, *heavy* 600 jobs of 1 to 64 GPUs, both on 16 nodes of 4 GPUs. *Philly* has 800 jobs in a row
from each of the trace's nine largest virtual clusters, with classes at random, on nodes of 8 GPUs. At load 2, jobs arrive twice as fast as at load 1. The
GPUs are drawn from the measurements of %s.
`

// found is what we found on 2026-11-30.
const found = `
## In short

* **Pal over packed**: the average completion time falls by 1 to 4 % on sia and by 0 to 3 % on heavy and Philly. Class A runs 1 to 4 % faster.
  The interval excludes 1 in four of six cells of sia, in two of heavy and in none of Philly. No class waits longer beyond chance.
* **The bound is near**: 5 to 8 % on sia, 2 to 5 % on heavy, 3 to 9 % on Philly. Our aims (0.96 on sia, 0.98 on heavy and Philly, run time of class A
  0.95) are at or beyond what all gangs could reach only if each had the best GPUs to itself.
* **Avoiding very slow GPUs gains most**: with Longhorn's outliers, a scheduler that knows no speeds takes 13 to 16 % longer on sia.
* **Being close together gains more than being fast**: spread and random lose 9 to 50 %.
* **Tried, and not better** on the seeds for choosing: waits for GPUs that are a few percent faster, even with exact run times; slow GPUs first
  for insensitive classes; broken nodes first for wide gangs; less or more tolerance for slower bins (0 to 40 %) in exchange for whole nodes.
  Without the rule that puts wide gangs on few nodes, averages are 1 to 2 % longer, so the rule stays.
`

const data = `
## When it is worth it

Gains come from slow GPUs and from differences that last. Our [study](studies.md#how-stable-a-gpus-class-is) of the published measurements
found that training runs mostly do not distinguish the GPUs of one model: on Longhorn's V100s, 26 % of the GPUs keep their class from one half of the
ResNet-50 runs to the other. A steady kernel (SGEMM) does distinguish them: 96 % keep their class. The outliers of Longhorn's ResNet-50 are single
bad runs of normal GPUs, so on that cluster a scheduler that avoids slow GPUs would gain less than *blind* suggests.
`

// page writes the results.
func page(cells []*cell, data32 bool) []byte {
	var b bytes.Buffer
	from := "Longhorn (V100) and Frontera (RTX 5000), from the product's tables"
	if data32 {
		from = "Longhorn (V100), Frontera (RTX 5000) and the PAL paper's cluster of 32 GPUs"
	}
	fmt.Fprintf(&b, head, "`make sim-placement`", time.Now().UTC().Format(time.DateOnly), from)
	b.WriteString(found)
	fmt.Fprint(&b, "\n## Average completion time, by workload and GPUs\n\n| | pairs |")
	for _, v := range variants()[1:] {
		fmt.Fprintf(&b, " %s |", v.name)
	}
	fmt.Fprintf(&b, "\n|---|---|%s\n", strings.Repeat("---|", len(variants())-1))
	for _, c := range cells {
		fmt.Fprintf(&b, "| %s | %d |", c.name(), len(c.pairs))
		for _, v := range variants()[1:] {
			fmt.Fprintf(&b, " %s |", short(c.over(v.name, all, jct)))
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprint(&b, "\n## By class: pal over packed\n\n| | run time of A | of B, C, D | wait of A | B | C | D |\n|---|---|---|---|---|---|---|\n")
	for _, c := range cells {
		fmt.Fprintf(&b, "| %s | %s |", c.name(), interval(c.over("pal", 0, ran)))
		for k := 1; k < pal.NumClasses; k++ {
			fmt.Fprintf(&b, " %.3f", c.over("pal", k, ran).Value)
		}
		fmt.Fprint(&b, " |")
		for k := range pal.NumClasses {
			fmt.Fprintf(&b, " %s |", short(c.over("pal", k, wait)))
		}
		fmt.Fprintln(&b)
	}
	b.WriteString(data)
	return b.Bytes()
}

// short writes a ratio as "0.98 ± 0.01".
func short(r sim.Ratio) string { return fmt.Sprintf("%.3f ± %.3f", r.Value, (r.High-r.Low)/2) }

// interval writes a ratio as "0.98 (0.97–0.99)".
func interval(r sim.Ratio) string { return fmt.Sprintf("%.3f (%.3f–%.3f)", r.Value, r.Low, r.High) }

// rows writes a line of CSV for each comparison with base.
func rows(cells []*cell) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, "workload,profile,load,pairs,policy,class,figure,ratio,low,high")
	for _, c := range cells {
		for _, v := range variants()[1:] {
			for k := range pal.NumClasses + 1 {
				class := "all"
				if k < pal.NumClasses {
					class = string(pal.AppClasses()[k])
				}
				for _, f := range []struct {
					name string
					of   func(totals) float64
				}{{"completion", jct}, {"run", ran}, {"wait", wait}} {
					r := c.over(v.name, k, f.of)
					fmt.Fprintf(&b, "%s,%s,%g,%d,%q,%s,%s,%.4f,%.4f,%.4f\n", c.of.name, c.profile, c.load, len(c.pairs), v.name, class, f.name, r.Value, r.Low, r.High)
				}
			}
		}
	}
	return b.Bytes()
}
