// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// limit is the policy that all are measured against.
const limit = "clairvoyant"

// markdown are the tables.
func (r report) markdown() ([]byte, error) {
	var b bytes.Buffer
	target := "make sim-traces"
	if r.quick {
		target += "-quick"
	}
	if r.only != "" {
		target += fmt.Sprintf(` SIM_TRACES_ARGS="-only '%s'"`, r.only)
	}
	fmt.Fprintf(&b, `# Policies on real traces

Written by `+"`%s`"+`; one line a run in the JSON file beside this one. All policies run on the same jobs and GPUs: nodes of 8 GPUs with the variability of Longhorn, one GPU in 64 an outlier or none; a gang across nodes takes 1.7 times as long; a stopped gang loses %d s. The load is the GPU time of the jobs over that of the cluster between the first submission and the last; the cluster has as many nodes as make it so. Gangs are one-GPU members that may lie anywhere, or tasks of up to 8 GPUs that lie on one node each, as Nomad's users write them. Rules were chosen by one half of the virtual clusters; the other half, and the clusters as a whole, show the outcome. `+"`nomad-pal simulate -help`"+` describes each policy; "ours" is the agent's default queue, where gangs may not be stopped, and where they may ("preempting"). Users give no estimates, except where the policy says so ("exact times", easy, srtf and clairvoyant know all run times, easy-users what users guess).

One aim cannot be held: an average at or below SRTF's with exact times without knowing any. SRTF there is an oracle; nobody who does not know the run times comes near it, and what ours does when it knows them stands in tables of its own. SRTF has no bound on waiting either: what ours loses to it when it knows the run times, the bound costs ("no bound"). Nor can gangs that are never stopped reach those that stop others, in the p99 of the slowdown above all: a short gang waits for long ones to end. Ours also loses the average to some that stop nobody either. Plain Nomad with spread has a better one where jobs that need a whole node come last of all under it (its makespan tells). And on small clusters all others wait while ours serves an overdue wide gang.

`, target, restartS)
	if r.quick {
		fmt.Fprintf(&b, "This is the quick form: of each virtual cluster the first %d jobs, gangs as tasks, GPUs with outliers; no cluster as a whole.\n\n", quickJobs)
	}
	if len(r.cells) < r.of {
		fmt.Fprintf(&b, "This is not all: %d of %d cells.\n\n", len(r.cells), r.of)
	}
	for _, m := range r.missing {
		fmt.Fprintf(&b, "* Not there, so not run: %s\n", m)
	}
	versions(&b, r.cells)
	for _, p := range []struct {
		part  part
		title string
	}{{chosen, "Virtual clusters to choose by"}, {reported, "Virtual clusters to report on"}, {whole, "Whole clusters"}, {sia, "Sia-Philly workloads of the PAL artifact, on 16 nodes of 4 GPUs"}} {
		cells := slices.DeleteFunc(slices.Clone(r.cells), func(c *result) bool { return c.Part != p.part })
		if len(cells) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n", p.title)
		summary(&b, cells)
		losses(&b, cells)
	}
	foretold(&b, r.cells)
	return b.Bytes(), nil
}

// versions says which runs are of which commit, where that was kept of any.
func versions(b *bytes.Buffer, cells []*result) {
	of := map[string]bool{}
	for _, c := range cells {
		for _, r := range c.Runs {
			of[r.Of] = true
		}
	}
	if len(of) == 1 && of[""] {
		return
	}
	fmt.Fprint(b, "\nWhat was run with which queue (`of` in the JSON file: date and commit of the last change to it before the run):\n\n| of | runs of ours | on | runs of the others | on |\n|---|---|---|---|---|\n")
	ours := map[string]bool{}
	for _, p := range policies() {
		ours[p.name] = p.ours
	}
	for _, v := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(b, "| %s |", cmp.Or(v, "earlier: not kept"))
		for _, which := range []bool{true, false} {
			n, where := runsOf(cells, func(r run) bool { return r.Of == v && ours[r.Policy] == which })
			fmt.Fprintf(b, " %d | %s |", n, where)
		}
		fmt.Fprintln(b)
	}
}

// runsOf counts runs, and names the traces that they are on.
func runsOf(cells []*result, which func(run) bool) (n int, where string) {
	var traces []string
	on, of := map[string]int{}, map[string]int{}
	for _, c := range cells {
		if of[c.Trace]++; of[c.Trace] == 1 {
			traces = append(traces, c.Trace)
		}
		had := n
		for _, r := range c.Runs {
			if which(r) {
				n++
			}
		}
		if n > had {
			on[c.Trace]++
		}
	}
	if maps.Equal(on, of) {
		return n, "all"
	}
	var names []string
	for _, t := range traces {
		switch on[t] {
		case 0:
		case of[t]:
			names = append(names, t)
		default:
			names = append(names, fmt.Sprintf("%s (%d of %d cells)", t, on[t], of[t]))
		}
	}
	return n, strings.Join(names, "; ")
}

// rivals are those whose best is asked of ours: neither ours nor the limit, and none
// that knows the run times, unless ours does.
func rivals(c *result, exact bool) []run {
	out := map[string]bool{limit: true}
	for _, p := range policies() {
		out[p.name] = out[p.name] || p.ours || p.exact && !exact
	}
	return slices.DeleteFunc(slices.Clone(c.Runs), func(r run) bool { return out[r.Policy] || r.Stuck > 0 })
}

// least is the smallest of a figure over runs.
func least(rs []run, figure func(run) float64) (best run) {
	for i, r := range rs {
		if i == 0 || figure(r) < figure(best) {
			best = r
		}
	}
	return best
}

func (c *result) of(policy string) run {
	for _, r := range c.Runs {
		if r.Policy == policy {
			return r
		}
	}
	return run{}
}

func average(r run) float64  { return r.AvgJCT }
func tail(r run) float64     { return r.P99 }
func makespan(r run) float64 { return r.Makespan }

// geomean is the geometric mean of a ratio over cells.
func geomean(cells []*result, ratio func(*result) float64) float64 {
	sum := 0.0
	for _, c := range cells {
		sum += math.Log(ratio(c))
	}
	return math.Exp(sum / float64(len(cells)))
}

// loads are the loads of the cells, ascending.
func loads(cells []*result) []float64 {
	var ls []float64
	for _, c := range cells {
		if !slices.Contains(ls, c.Load) {
			ls = append(ls, c.Load)
		}
	}
	slices.Sort(ls)
	return ls
}

// summary is one line a policy: its averages over the clairvoyant's by load, its
// tail and its makespan over the best of all others'.
func summary(b *bytes.Buffer, cells []*result) {
	ls := loads(cells)
	fmt.Fprintf(b, "\nAverage job completion time over that of the clairvoyant policy, by load; p99 of the slowdown (completion time over work) and makespan over the least of all but the clairvoyant's. Geometric means over %d cells; in brackets the worst cell. Where jobs never finish, the figures are of the others.\n\n", len(cells))
	fmt.Fprint(b, "| policy |")
	for _, l := range ls {
		fmt.Fprintf(b, " average, load %s |", percent(l))
	}
	fmt.Fprintf(b, " p99 slowdown | makespan | never finish |\n|---%s|---|---|---|\n", strings.Repeat("|---", len(ls)))
	for _, p := range policies() {
		stuck := 0
		for _, c := range cells {
			stuck += c.of(p.name).Stuck
		}
		fmt.Fprintf(b, "| %s |", p.name)
		for _, l := range ls {
			at := slices.DeleteFunc(slices.Clone(cells), func(c *result) bool { return c.Load != l })
			spread(b, at, func(c *result) float64 { return c.of(p.name).AvgJCT / c.of(limit).AvgJCT })
		}
		for _, figure := range []func(run) float64{tail, makespan} {
			spread(b, cells, func(c *result) float64 {
				all := slices.DeleteFunc(slices.Clone(c.Runs), func(r run) bool { return r.Policy == limit || r.Stuck > 0 })
				return figure(c.of(p.name)) / figure(least(all, figure))
			})
		}
		fmt.Fprintf(b, " %d |\n", stuck)
	}
}

// spread is a geometric mean with the worst of it.
func spread(b *bytes.Buffer, cells []*result, ratio func(*result) float64) {
	worst := 0.0
	for _, c := range cells {
		worst = max(worst, ratio(c))
	}
	fmt.Fprintf(b, " %.2f (%.2f) |", geomean(cells, ratio), worst)
}

// losses is one line a cell: ours against the best of the others, each loss in
// bold; once where nobody knows the run times, once where ours knows them, as SRTF
// and EASY do.
func losses(b *bytes.Buffer, cells []*result) {
	const what = "average, p99 slowdown and makespan, each over the least. Bold is a loss: an average above it, a p99 above 1.5 times it, a makespan above 1.05 times it. \"Bound\": average over that without a bound on waiting.\n\n"
	fmt.Fprint(b, "\nOurs against the best of those in each cell that know as little (plain Nomad, EASY by users' estimates, Tiresias, Gandiva and LAS with and without bound): "+what)
	lossesOf(b, cells, false)
	fmt.Fprint(b, "\nOurs, told exact times, against the best of all but the clairvoyant's, SRTF and EASY by exact times among them: "+what)
	lossesOf(b, cells, true)
}

func lossesOf(b *bytes.Buffer, cells []*result, exact bool) {
	fmt.Fprint(b, "| trace | GPUs of a task | load | GPUs | outliers | best average | h | ours | p99 | makespan | bound | preempting | p99 | makespan | bound |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	told := ""
	if exact {
		told = ", exact times"
	}
	lost, won := map[string][3]int{}, []string{"ours" + told, "ours, preempting" + told}
	for _, c := range cells {
		rs := rivals(c, exact)
		best := least(rs, average)
		fmt.Fprintf(b, "| %s | %d | %s | %d | %d | %s | %.1f |", c.Trace, c.TaskGPUs, percent(c.Load), c.GPUs, c.Outliers, best.Policy, best.AvgJCT/3600)
		for _, name := range won {
			r := c.of(name)
			if r.Stuck > 0 {
				fmt.Fprintf(b, " **%d jobs never finish** | | | |", r.Stuck)
				continue
			}
			n := lost[name]
			for i, v := range []float64{r.AvgJCT / best.AvgJCT, r.P99 / least(rs, tail).P99, r.Makespan / least(rs, makespan).Makespan} {
				n[i] += loss(b, v, lossAbove[i])
			}
			lost[name] = n
			fmt.Fprintf(b, " %.2f |", r.AvgJCT/c.of(name+", no bound").AvgJCT)
		}
		fmt.Fprintln(b)
	}
	fmt.Fprintln(b)
	for _, name := range won {
		n := lost[name]
		fmt.Fprintf(b, "* %s loses the average in %d, the p99 in %d and the makespan in %d of %d cells; its average is %.3f of the best (geometric mean).\n",
			name, n[0], n[1], n[2], len(cells), geomean(cells, func(c *result) float64 { return c.of(name).AvgJCT / least(rivals(c, exact), average).AvgJCT }))
		costs := func(c *result) float64 { return c.of(name).AvgJCT / c.of(name+", no bound").AvgJCT }
		fmt.Fprintf(b, "  The bound on waiting costs it more than 10 %% of the average in %d of %d cells; %.3f in the geometric mean.\n",
			count(cells, func(c *result) bool { return costs(c) > 1.1 }), len(cells), geomean(cells, costs))
	}
	if exact {
		return
	}
	overStoppers := func(c *result) float64 { return c.of("ours").AvgJCT / least(thatStopNobody(c), average).AvgJCT }
	fmt.Fprintf(b, "* ours against those that stop nobody either (plain Nomad, EASY by users' estimates): it loses the average in %d of %d cells; its average is %.3f of the best (geometric mean).\n",
		count(cells, func(c *result) bool { return overStoppers(c) > 1 }), len(cells), geomean(cells, overStoppers))
}

// thatStopNobody are the policies that never stop a gang, and know no run times.
func thatStopNobody(c *result) []run {
	return slices.DeleteFunc(rivals(c, false), func(r run) bool { return !strings.HasPrefix(r.Policy, "nomad") && !strings.HasPrefix(r.Policy, "easy") })
}

func count(cells []*result, is func(*result) bool) (n int) {
	for _, c := range cells {
		if is(c) {
			n++
		}
	}
	return n
}

// foretold is one line a trace: how often the ranges held in which ours said that
// waiting gangs would start.
func foretold(b *bytes.Buffer, cells []*result) {
	var traces []string
	for _, c := range cells {
		if !slices.Contains(traces, c.Trace) {
			traces = append(traces, c.Trace)
		}
	}
	names := asked()
	fmt.Fprintf(b, "\n## Expected starts\n\nSome of the waiting gangs, from all of the queue alike, are asked when they start: after every 5 decisions, or, on a trace of n > 2,500 jobs, after every n/100. The table compares the answers with what happened: how often the 80 %% ranges held (all loads together), of how many, and the median length of a range in hours. They are to hold 75–85 %% of the time; bold is outside. Asked like this, gangs that wait long are asked most often. So the ranges are long: in an overload without known run times a wait of weeks ends tomorrow or in a month, and eight in ten cannot be had in less. Where few gangs wait, as on the workloads of 160 jobs, there is too little to learn from, and the rate is not kept.\n\n| trace |")
	for _, n := range names {
		fmt.Fprintf(b, " %s | of | h |", n)
	}
	fmt.Fprintf(b, "\n|---%s|\n", strings.Repeat("|---", 3*len(names)))
	for _, t := range traces {
		fmt.Fprintf(b, "| %s |", t)
		for _, n := range names {
			made, hits, width := 0, 0.0, 0.0
			for _, c := range cells {
				if r := c.of(n); c.Trace == t {
					made, hits, width = made+r.Forecasts, hits+r.Hits*float64(r.Forecasts), width+r.Width*float64(r.Forecasts)
				}
			}
			switch rate := 100 * hits / float64(made); {
			case made == 0:
				fmt.Fprint(b, " nobody waited | | |")
			case rate < 74.5 || rate >= 85.5:
				fmt.Fprintf(b, " **%.0f %%** | %d | %.1f |", rate, made, width/float64(made))
			default:
				fmt.Fprintf(b, " %.0f %% | %d | %.1f |", rate, made, width/float64(made))
			}
		}
		fmt.Fprintln(b)
	}
}

// lossAbove is what an average, a p99 and a makespan may be of the least.
var lossAbove = []float64{1, 1.5, 1.05}

// loss writes a figure; it is 1 where that is a loss.
func loss(b *bytes.Buffer, v, most float64) int {
	if v > most+0.005 {
		fmt.Fprintf(b, " **%.2f** |", v)
		return 1
	}
	fmt.Fprintf(b, " %.2f |", v)
	return 0
}
