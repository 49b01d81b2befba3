// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/research/published"
)

// fittedOn is the GPU model from whose pairs the table in package pal is made. models lists all
// models, this model first.
const fittedOn = "V100"

var models = []string{fittedOn, "P100", "K80"}

// guess predicts how fast an application runs beside another application.
type guess func(p Pair) float64

// fitting returns the pairs of a model that fit in memory, sorted.
func fitting(ps Pairs, model string) (pairs []Pair) {
	for p, r := range ps[model] {
		if r > 0 {
			pairs = append(pairs, p)
		}
	}
	slices.SortFunc(pairs, func(a, b Pair) int { return cmp.Or(cmp.Compare(a.Of, b.Of), cmp.Compare(a.Beside, b.Beside)) })
	return pairs
}

// means predicts a pair by the mean of the model's pairs with the same key. If there are no such
// pairs, means uses the mean of all pairs. Left-out pairs do not count in the means.
func means(ps Pairs, model string, key func(Pair) string, leftOut func(Pair) bool) guess {
	sum, n := map[string]float64{}, map[string]float64{}
	const all = "all pairs"
	for _, p := range fitting(ps, model) {
		if leftOut != nil && leftOut(p) {
			continue
		}
		for _, k := range []string{key(p), all} {
			sum[k] += ps[model][p]
			n[k]++
		}
	}
	return func(p Pair) float64 {
		k := key(p)
		if n[k] == 0 {
			k = all
		}
		return sum[k] / n[k]
	}
}

// part formats a share of the variance with two digits. A share that is slightly negative because
// of rounding becomes "0.00", not "-0.00".
func part(p float64) string {
	return fmt.Sprintf("%.2f", math.Round(100*p)/100+0)
}

// explained is the share of the variance of a model's pairs that a guess explains. 1 means that it
// explains the whole variance, 0 means no more than the mean of the pairs explains, and below 0
// means less.
func explained(ps Pairs, model string, g guess) float64 {
	pairs, mean := fitting(ps, model), 0.0
	for _, p := range pairs {
		mean += ps[model][p] / float64(len(pairs))
	}
	left, total := 0.0, 0.0
	for _, p := range pairs {
		r := ps[model][p]
		left += (r - g(p)) * (r - g(p))
		total += (r - mean) * (r - mean)
	}
	return 1 - left/total
}

// Keys by which [means] groups pairs.
func one(Pair) string            { return "" }
func ownClass(p Pair) string     { return string(published.GavelClass(p.Of)) }
func bothClasses(p Pair) string  { return ownClass(p) + string(published.GavelClass(p.Beside)) }
func appOf(job string) string    { app, _, _ := strings.Cut(job, "/"); return app }
func applications(p Pair) string { return appOf(p.Of) + " " + appOf(p.Beside) }
func exactly(p Pair) string      { return p.Of + " " + p.Beside }
func without(is func(job string) bool) func(Pair) bool {
	return func(p Pair) bool { return is(p.Of) || is(p.Beside) }
}

// withMemory predicts by the classes and by how much memory both applications need. Gavel publishes
// no sizes, so an application's need is estimated by the number of other applications that do not
// fit beside it.
func withMemory(ps Pairs) guess {
	need, mean := map[string]float64{}, 0.0
	apps := ps.Apps(fittedOn)
	for _, model := range models {
		for p, r := range ps[model] {
			if r == 0 {
				need[p.Of] += 1 / float64(len(apps)*len(models))
				mean += 1 / float64(len(apps)*len(apps)*len(models))
			}
		}
	}
	classes := means(ps, fittedOn, bothClasses, nil)
	var oo, ob, bb, or, br float64 // sums of products of o (own need), b (the neighbour's need) and r (the residual of the classes)
	for _, p := range fitting(ps, fittedOn) {
		o, b, r := need[p.Of]-mean, need[p.Beside]-mean, ps[fittedOn][p]-classes(p)
		oo, ob, bb, or, br = oo+o*o, ob+o*b, bb+b*b, or+o*r, br+b*r
	}
	det := oo*bb - ob*ob
	own, other := (or*bb-br*ob)/det, (br*oo-or*ob)/det
	return func(p Pair) float64 { return classes(p) + own*(need[p.Of]-mean) + other*(need[p.Beside]-mean) }
}

// unseen is the share of the variance that classes explain for jobs that were left out of the fit.
// Each group of jobs is left out once.
func unseen(ps Pairs, model string, group func(job string) string) float64 {
	guesses := map[string]guess{}
	for _, job := range ps.Apps(model) {
		is := group(job)
		if guesses[is] == nil {
			guesses[is] = means(ps, model, bothClasses, without(func(job string) bool { return group(job) == is }))
		}
	}
	return explained(ps, model, func(p Pair) float64 { return guesses[group(p.Of)](p) })
}

// table has the speed of a job of one class beside a job of another class, relative to its speed
// alone. Each entry is the mean of the model's pairs.
func table(ps Pairs, model string) (t [pal.NumClasses][pal.NumClasses]float64) {
	g, n := means(ps, model, bothClasses, nil), [pal.NumClasses][pal.NumClasses]bool{}
	for _, p := range fitting(ps, model) {
		i, k := published.GavelClass(p.Of).Index(), published.GavelClass(p.Beside).Index()
		t[i][k], n[i][k] = g(p), true
	}
	return t
}

const neighboursHead = `# What neighbours on a GPU cost each other

Written by %s on %s from Gavel's measurements (OSDI 2020). Gavel measured how fast each of 26 training jobs (seven applications
with several batch sizes) runs on a GPU next to each of these jobs, relative to its speed alone. The product's table (` + "`pal/sharing.go`" + `)
has the mean of the V100's pairs for each pair of classes. No pairs have been measured with this plugin.

| class | applications |
|---|---|
| A | ResNet-50 |
| B | Transformer, language models (LSTM), CycleGAN, A3C |
| C | recommendation (autoencoder) |
| D | ResNet-18 on small images |

Of all ways to divide the seven applications among four classes, this division explains the V100's pairs best.

## The table

Rate of a job (row) next to a job of another class (column). A job alone has the rate 1:

`

// neighbours writes the page.
func neighbours(ps Pairs) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, neighboursHead, "`make sim-neighbours`", time.Now().UTC().Format(time.DateOnly))
	writeTable(&b, ps, fittedOn)
	fmt.Fprintf(&b, "\n## How much it explains\n\nThe table has the share of the variance that each guess explains, for pairs that fit in memory. A guess with share 1 explains all of the variance. A guess with share 0 is as good as the mean of the model's pairs, and a guess with a negative share is worse.\nAll guesses are fitted on the %s alone. The %s and the K80 only test the guesses.\n\n| guess | fitted numbers | %s |\n|---|---|---|---|---|\n", fittedOn, models[1], strings.Join(models, " | "))
	for _, g := range []struct {
		name, numbers string
		guess         guess
	}{
		{"one number for all", "1", means(ps, fittedOn, one, nil)},
		{"by the job's own class", "4", means(ps, fittedOn, ownClass, nil)},
		{"**by both classes** (in the product)", "16", means(ps, fittedOn, bothClasses, nil)},
		{"by both classes, and the memory that both need", "18", withMemory(ps)},
		{"by both applications", "49", means(ps, fittedOn, applications, nil)},
		{"the same pair, as measured on the V100", "676", means(ps, fittedOn, exactly, nil)},
	} {
		fmt.Fprintf(&b, "| %s | %s |", g.name, g.numbers)
		for _, model := range models {
			fmt.Fprintf(&b, " %s |", part(explained(ps, model, g.guess)))
		}
		b.WriteByte('\n')
	}
	b.WriteString("\nGavel's table does not state a job's memory, so we estimate the memory from the number of jobs that do not fit on a GPU together with this job.\n")
	b.WriteString("\nThe guess by both classes, fitted on one model and scored on another:\n\n| fitted on | pairs | pairs that fit in memory | mean rate | work of two jobs, relative to one |")
	for _, model := range models {
		fmt.Fprintf(&b, " scored on %s |", model)
	}
	b.WriteString("\n|---|---|---|---|---|---|---|---|\n")
	for _, model := range models {
		pairs, mean := fitting(ps, model), 0.0
		for _, p := range pairs {
			mean += ps[model][p] / float64(len(pairs))
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %.2f | %.2f |", model, len(ps[model]), len(pairs), mean, 2*mean)
		for _, on := range models {
			fmt.Fprintf(&b, " %s |", part(explained(ps, on, means(ps, model, bothClasses, nil))))
		}
		b.WriteByte('\n')
	}
	b.WriteString("\nThe guess by both classes, for jobs that were left out of the fit, on the same model:\n\n| model | new batch size | new application |\n|---|---|---|\n")
	for _, model := range models {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", model, part(unseen(ps, model, func(job string) string { return job })), part(unseen(ps, model, appOf)))
	}
	b.WriteString(neighboursMeans)
	b.WriteString("\nThe CSV file next to this page has the table of each model.\n")
	memory(&b, ps)
	return b.Bytes()
}

// memory writes which pairs do not fit in memory.
func memory(b *bytes.Buffer, ps Pairs) {
	b.WriteString("\n## Memory\n\nPairs that do not fit in the GPU's memory together have no rate. In the simulations of sharing, the jobs in the last column request all parts of a GPU. Any two other jobs fit together.\n\n| model | pairs that do not fit | jobs that take a whole GPU |\n|---|---|---|\n")
	for _, model := range models {
		large := ps.Large([]string{model})
		var names []string
		for _, job := range ps.Apps(model) {
			if large[job] {
				names = append(names, job)
			}
		}
		fmt.Fprintf(b, "| %s | %d | %s |\n", model, len(ps[model])-len(fitting(ps, model)), strings.Join(names, ", "))
	}
}

const neighboursMeans = `
## Conclusions

* The four classes are fitted on the V100. On this model, the classes explain more than half of the variance of the rates. For a new batch size of a known application, the
  classes explain nearly as much.
* The classes do not predict rates on other GPU models, or rates of an application without a class. On P100 and K80 two jobs run as if they took
  turns (the mean rate is near one half), but on the V100 a neighbour hardly slows a small job.
* So the table is only a first guess. On models other than the V100, the table can even rank neighbours in the wrong order. A job's own run times beside
  other jobs predict its rate better.
`

// rates writes the table of each model, one line per pair of classes.
func rates(ps Pairs) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, "model,class,next_to,rate")
	for _, model := range models {
		t := table(ps, model)
		for i, class := range pal.AppClasses() {
			for k, other := range pal.AppClasses() {
				fmt.Fprintf(&b, "%s,%s,%s,%.2f\n", model, class, other, t[i][k])
			}
		}
	}
	return b.Bytes()
}

func writeTable(b *bytes.Buffer, ps Pairs, model string) {
	b.WriteString("| |")
	for _, k := range pal.AppClasses() {
		fmt.Fprintf(b, " next to %s |", k)
	}
	b.WriteString("\n|---|---|---|---|---|\n")
	t := table(ps, model)
	for i, class := range pal.AppClasses() {
		fmt.Fprintf(b, "| **%s** |", class)
		for k := range pal.NumClasses {
			fmt.Fprintf(b, " %.2f |", t[i][k])
		}
		b.WriteByte('\n')
	}
}
