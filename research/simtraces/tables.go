// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"github.com/nomad-pal/nomad-pal/research/baselines"
	"maps"
	"math"
	"slices"
	"strings"
)

// limit is the policy to which all others are compared.
const limit = baselines.Limit

// header explains the tables.
const header = `# Policies on real traces

Made by ` + "`%s`" + `. Beside this page, a JSON file has each run, and a CSV file has each cell. A cell is a trace at one load on one cluster.

* All policies run the same jobs on the same nodes of 8 GPUs, with the variability of Longhorn. Either one GPU in 64 is an outlier, or none is. A gang that spans several nodes takes 1.7 times as long. A stopped gang loses %d s.
* The load is the GPU time of the jobs divided by the GPU time of the cluster between the first submission and the last.
* A gang consists either of one-GPU members that can run on any node, or of tasks of up to 8 GPUs, each on one node.
* We chose the rules on one half of the virtual clusters. This page shows the results on the other half, and on complete clusters.
* "ours" is the agent's default queue if no gang may be stopped. In "preempting", all gangs may be stopped. In the lines with "exact times", jobs have exact estimates; in all other lines, jobs have no estimates. SRTF and clairvoyant know all run times; easy-users knows users' guesses. ` + "`nomad-pal simulate -help`" + ` describes each policy.

Averages are average completion times, relative to the average of the clairvoyant policy. The p99 slowdown (completion time divided by work) and the makespan are relative to the lowest value of all policies except clairvoyant. All figures are geometric means over cells; the worst cell is in brackets.

"Lost" counts the cells in which ours is worse than the best rival: our average is above the lowest average of a rival, our p99 above 1.5 times the lowest p99, or our makespan above 1.05 times the lowest makespan. The rivals do not know exact run times: plain Nomad, EASY by users' estimates, Tiresias, Gandiva, LAS. Only plain Nomad and EASY stop no gang. For ours with exact times, the rivals include SRTF and EASY with exact times. "Over best" is our average divided by the lowest average of a rival.

`

// markdown returns the page with the tables.
func (r report) markdown() ([]byte, error) {
	var b bytes.Buffer
	target := "make sim-traces"
	if r.quick {
		target += "-quick"
	}
	if r.only != "" {
		target += fmt.Sprintf(` SIM_TRACES_ARGS="-only '%s'"`, r.only)
	}
	if r.quick {
		fmt.Fprintf(&b, "# Policies on parts of real traces\n\nMade by `%s`. Rules, policies and tables are the same as for [all traces](sim-traces.md). Only the first %d jobs of each virtual cluster run. Gangs consist of tasks, and some GPUs are outliers.\n\n", target, quickJobs)
	} else {
		fmt.Fprintf(&b, header, target, restartS)
	}
	if len(r.cells) < r.of {
		fmt.Fprintf(&b, "Incomplete: %d of %d cells.\n\n", len(r.cells), r.of)
	}
	if len(r.missing) > 0 {
		var names []string
		for _, m := range r.missing {
			name, _, _ := strings.Cut(m, " (traces/")
			names = append(names, name)
		}
		fmt.Fprintf(&b, "Not run, because the traces were missing: %s.\n", strings.Join(names, "; "))
	}
	versions(&b, r.cells)
	for _, p := range parts {
		if p.part == chosen && slices.ContainsFunc(r.cells, func(c *result) bool { return c.Part == reported }) {
			continue // only the CSV file has these cells
		}
		cells := slices.DeleteFunc(slices.Clone(r.cells), func(c *result) bool { return c.Part != p.part })
		if len(cells) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n", p.title)
		summary(&b, cells)
		overOthers(&b, cells)
	}
	predictedStarts(&b, r.cells, r.quick)
	return b.Bytes(), nil
}

// versions writes how many runs were made with each commit, if any run records its commit.
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
	runs := map[string]*[2]int{}
	for v := range of {
		runs[v] = new([2]int)
	}
	ours := map[string]bool{}
	for _, p := range policies() {
		ours[p.name] = p.ours
	}
	for _, c := range cells {
		for _, r := range c.Runs {
			if ours[r.Policy] {
				runs[r.Of][0]++
			} else {
				runs[r.Of][1]++
			}
		}
	}
	var all []string
	for _, v := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%s: %d and %d", cmp.Or(v, "not recorded"), runs[v][0], runs[v][1]))
	}
	fmt.Fprintf(b, "\nNumber of runs by version of the queue (our policies and other policies): %s.\n", strings.Join(all, "; "))
}

// rivals returns the runs to which our policies are compared: those of all other policies except
// the limit. Policies that know run times count only if exact is set, because our policies then
// also know run times.
func rivals(c *result, exact bool) []run {
	out := map[string]bool{limit: true}
	for _, p := range policies() {
		out[p.name] = out[p.name] || p.ours || p.exact && !exact
	}
	return slices.DeleteFunc(slices.Clone(c.Runs), func(r run) bool { return out[r.Policy] || r.Stuck > 0 })
}

// least is the run with the smallest figure.
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

// summary writes one line per policy: by load, its averages relative to the clairvoyant policy, and
// its p99 slowdown and makespan relative to the best policy other than the clairvoyant policy.
func summary(b *bytes.Buffer, cells []*result) {
	ls := loads(cells)
	fmt.Fprintf(b, "\n%d cells.\n\n", len(cells))
	fmt.Fprint(b, "| policy |")
	for _, l := range ls {
		fmt.Fprintf(b, " average, load %s |", percent(l))
	}
	fmt.Fprintf(b, " p99 slowdown | makespan | lost: average, p99, makespan | over best |\n|---%s|---|---|---|---|\n", strings.Repeat("|---", len(ls)))
	var stuck []string
	for _, p := range policies() {
		for _, c := range cells {
			if n := c.of(p.name).Stuck; n > 0 {
				stuck = append(stuck, fmt.Sprintf("%d of %s on %s", n, p.name, c.Trace))
			}
		}
		if !slices.Contains(shown, p.name) {
			continue
		}
		fmt.Fprintf(b, "| %s |", p.name)
		for _, l := range ls {
			at := slices.DeleteFunc(slices.Clone(cells), func(c *result) bool { return c.Load != l })
			fmt.Fprintf(b, " %.2f |", geomean(at, func(c *result) float64 { return c.of(p.name).AvgJCT / c.of(limit).AvgJCT }))
		}
		for _, figure := range []func(run) float64{tail, makespan} {
			spread(b, cells, func(c *result) float64 {
				all := slices.DeleteFunc(slices.Clone(c.Runs), func(r run) bool { return r.Policy == limit || r.Stuck > 0 })
				return figure(c.of(p.name)) / figure(least(all, figure))
			})
		}
		losses(b, cells, p.name)
	}
	if len(stuck) > 0 {
		fmt.Fprintf(b, "\nJobs that never finish, and are not included in any figure: %s.\n", strings.Join(stuck, "; "))
	}
}

// shown are the policies in the tables. The JSON file has all policies.
var shown = []string{"ours", "ours, preempting", "ours, exact times", "ours, preempting, exact times", "nomad-30m", "easy-users", "srtf", "las", "tiresias", limit}

// spread writes a geometric mean and the worst cell.
func spread(b *bytes.Buffer, cells []*result, ratio func(*result) float64) {
	worst := 0.0
	for _, c := range cells {
		worst = max(worst, ratio(c))
	}
	fmt.Fprintf(b, " %.2f (%.2f) |", geomean(cells, ratio), worst)
}

// overOthers compares our policy without stops with the other policies that stop no gang.
func overOthers(b *bytes.Buffer, cells []*result) {
	over := func(c *result) float64 { return c.of("ours").AvgJCT / least(thatStopNobody(c), average).AvgJCT }
	fmt.Fprintf(b, "\nThe average of \"ours\" is %.3f times that of the best other policy that stops no gang; \"ours\" is worse in %s.\n",
		geomean(cells, over), cellsOf(count(cells, func(c *result) bool { return over(c) > 1 })))
}

// won returns those of our policies that the page compares with the best rival.
func won(exact bool) []string {
	if exact {
		return []string{"ours, exact times", "ours, preempting, exact times"}
	}
	return []string{"ours", "ours, preempting"}
}

// lossAbove are the ratios to the best rival's average, p99 and makespan above which a cell counts
// as lost.
var lossAbove = []float64{1, 1.5, 1.05}

// losses writes the last columns of a policy's line. For our policies, it counts the cells in which
// a rival with the same knowledge is better.
func losses(b *bytes.Buffer, cells []*result, name string) {
	exact := slices.Contains(won(true), name)
	if !exact && !slices.Contains(won(false), name) {
		fmt.Fprintln(b, " | |")
		return
	}
	var n [3]int
	for _, c := range cells {
		for i, v := range c.overBest(name, exact) {
			if v > lossAbove[i]+0.005 {
				n[i]++
			}
		}
	}
	fmt.Fprintf(b, " %d, %d, %d | %.3f |\n", n[0], n[1], n[2], geomean(cells, func(c *result) float64 { return c.overBest(name, exact)[0] }))
}

// overBest is a policy's average, p99 slowdown and makespan, each relative to the smallest value of
// a rival.
func (c *result) overBest(name string, exact bool) (over [3]float64) {
	r, rs := c.of(name), rivals(c, exact)
	for i, figure := range []func(run) float64{average, tail, makespan} {
		over[i] = figure(r) / figure(least(rs, figure))
	}
	return over
}

// boundCosts is a policy's average, relative to the same policy without a limit on waiting.
func (c *result) boundCosts(name string) float64 {
	return c.of(name).AvgJCT / c.of(name+", no bound").AvgJCT
}

// csv writes two lines for each cell: one for ours without knowledge of run times, one for ours
// with exact run times.
func (r report) csv() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintln(&b, "trace,part,task_gpus,load,gpus,outliers,told,best_policy,best_average_h,ours_average,ours_p99,ours_makespan,ours_bound,preempting_average,preempting_p99,preempting_makespan,preempting_bound")
	for _, c := range r.cells {
		for _, exact := range []bool{false, true} {
			told, best := "nothing", least(rivals(c, exact), average)
			if exact {
				told = "exact times"
			}
			fmt.Fprintf(&b, "%q,%s,%d,%.2f,%d,%d,%s,%s,%.1f", c.Trace, c.Part, c.TaskGPUs, c.Load, c.GPUs, c.Outliers, told, best.Policy, best.AvgJCT/3600)
			for _, name := range won(exact) {
				over := c.overBest(name, exact)
				fmt.Fprintf(&b, ",%.2f,%.2f,%.2f,%.2f", over[0], over[1], over[2], c.boundCosts(name))
			}
			fmt.Fprintln(&b)
		}
	}
	return b.Bytes(), nil
}

// thatStopNobody returns the runs of policies that never stop a gang and do not know run times.
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

const startsMean = "The queue predicts a range for the start of each waiting gang. In 80 % of the cases the gang should start within the range. The table shows how many sampled ranges contained the actual start, and in brackets the median length of these ranges in hours (mean over traces). Shares outside 75 to 85 % are bold. Gangs that wait long are sampled most often, so the sampled ranges are long."

// predictedStarts writes one line per part: how often waiting gangs started within the ranges that
// our queue had predicted.
func predictedStarts(b *bytes.Buffer, cells []*result, quick bool) {
	names := asked()
	meaning := startsMean
	if quick {
		meaning = "[All traces](sim-traces.md#expected-starts) explains this table."
	}
	fmt.Fprintf(b, "\n## Expected starts\n\n%s\n\n| part |", meaning)
	for _, n := range names {
		fmt.Fprintf(b, " %s |", n)
	}
	fmt.Fprintf(b, "\n|---%s|\n", strings.Repeat("|---", len(names)))
	for _, p := range parts {
		of := slices.DeleteFunc(slices.Clone(cells), func(c *result) bool { return c.Part != p.part })
		if len(of) == 0 {
			continue
		}
		fmt.Fprintf(b, "| %s |", p.title)
		for _, n := range names {
			made, hits, width := 0, 0.0, 0.0
			for _, c := range of {
				r := c.of(n)
				made, hits, width = made+r.Forecasts, hits+r.Hits*float64(r.Forecasts), width+r.Width*float64(r.Forecasts)
			}
			switch rate := 100 * hits / float64(made); {
			case made == 0:
				fmt.Fprint(b, " nobody waited |")
			case rate < 74.5 || rate >= 85.5:
				fmt.Fprintf(b, " **%.0f %%** (%.0f) |", rate, width/float64(made))
			default:
				fmt.Fprintf(b, " %.0f %% (%.0f) |", rate, width/float64(made))
			}
		}
		fmt.Fprintln(b)
	}
}

func cellsOf(n int) string {
	if n == 1 {
		return "1 cell"
	}
	return fmt.Sprintf("%d cells", n)
}

// parts are the kinds of cells with separate tables.
var parts = []struct {
	part  part
	title string
}{{chosen, "Virtual clusters used to choose the rules"}, {reported, "Virtual clusters not used to choose the rules"}, {whole, "Whole clusters"}, {sia, "Sia-Philly on 16 nodes of 4 GPUs"}}
