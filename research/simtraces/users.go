// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nomad-pal/nomad-pal/bench/paldata"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/research/baselines"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// regime is what users tell the queue, and what users let the queue do with their jobs.
type regime struct {
	name     string
	says     func(i int, j trace.Job) time.Duration // estimates; nil: no estimates
	stops    func(i int) bool                       // whether a job may be stopped; nil: no job may
	hourly   bool                                   // hourly checkpoints: a stop loses the work since the last checkpoint
	nameless bool                                   // jobs have no names, so earlier runs predict nothing
	baseline string                                 // a policy to run instead of ours
}

// draw is a pseudo-random number from 0 to 1 for a job and a purpose.
func draw(i int, purpose uint64) float64 { return rand.New(rand.NewPCG(purpose, uint64(i))).Float64() }

func half(i int) bool  { return draw(i, 7) < 0.5 }
func other(i int) bool { return !half(i) }
func all(int) bool     { return true }

// Users' guesses, wrong by a factor of up to five. Those of short are always too short; those of
// near can also be too long.
func short(i int, j trace.Job) time.Duration { return secs(j.WorkS() * (0.2 + 0.8*draw(i, 8))) }
func near(i int, j trace.Job) time.Duration  { return secs(j.WorkS() * math.Pow(5, 2*draw(i, 9)-1)) }

// mixed returns guesses that are round and mostly 2 to 10 times too long; one in seven is too
// short.
func mixed(i int, j trace.Job) time.Duration {
	f := 2 * math.Pow(5, draw(i, 10))
	if draw(i, 11) < 1./7 {
		f = 0.2 + 0.8*draw(i, 12)
	}
	d, round := secs(j.WorkS()*f), 15*time.Minute
	for d > round && round < 7*24*time.Hour {
		round *= 2
	}
	return round
}

func secs(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// only removes the estimate of each job i for which of(i) is false.
func only(of func(int) bool, says func(int, trace.Job) time.Duration) func(int, trace.Job) time.Duration {
	return func(i int, j trace.Job) time.Duration {
		if !of(i) {
			return 0
		}
		return says(i, j)
	}
}

const sayNothing, stopHalf, stopAll, honest, nameless = "no estimates", "half may be stopped", "all may be stopped", "half estimate, no names", "nobody estimates, no names"

// honestOther is like the regime honest, but the other half of the jobs has estimates. Only one
// table has a line for honestOther.
const honestOther = "the other half estimates, no names"

// halves are the titles of the two halves of the traces.
var halves = []string{"Traces and seeds used to choose the rules", "Traces and seeds not used to choose the rules"}

// regimes returns the regimes of the bench of users.
func regimes() []regime {
	return []regime{
		{name: sayNothing},
		{name: "users' guesses", says: mixed},
		{name: "guesses too short", says: short},
		{name: "exact estimates", says: sim.Exact},
		{name: stopHalf, stops: half},
		{name: "half may be stopped, hourly checkpoints", stops: half, hourly: true},
		{name: stopAll, stops: all},
		{name: "all may be stopped, users' guesses", says: mixed, stops: all},
		{name: honest, says: only(half, near), nameless: true},
		{name: honestOther, says: only(other, near), nameless: true},
		{name: nameless, nameless: true},
		{name: "easy", baseline: "easy"},
		{name: "easy-users", baseline: "easy-users"},
		{name: "nomad-30m", baseline: "nomad-30m"},
		{name: "clairvoyant", baseline: limit},
	}
}

// ownLines returns the regimes that have lines in the tables.
func ownLines() []regime {
	return slices.DeleteFunc(regimes(), func(r regime) bool { return r.name == honestOther })
}

// felt is the result of a regime in a cell. Times are in seconds.
type felt struct {
	Trace    string  `json:"trace"`
	Part     part    `json:"part"`
	Load     float64 `json:"load"`
	GPUs     int     `json:"gpus"`
	Regime   string  `json:"regime"`
	AvgJCT   float64 `json:"avg_jct_s"`
	P99      float64 `json:"p99_slowdown"`
	Makespan float64 `json:"makespan_s"`
	// The next three fields are about the widest 5 % of gangs: the worst and the mean wait, and the
	// p95 slowdown.
	WideWorst float64 `json:"wide_worst_wait_s"`
	WideMean  float64 `json:"wide_mean_wait_s"`
	WideP95   float64 `json:"wide_p95_slowdown"`
	// Half is the average JCT of the half of the jobs that has estimates or may be stopped; Others
	// is that of the other half.
	Half      float64 `json:"half_avg_jct_s"`
	Others    float64 `json:"others_avg_jct_s"`
	MostStops int     `json:"most_stops"`
	Lost      float64 `json:"lost_share"` // share of the held GPU time
}

func (f felt) key() string { return fmt.Sprintf("%s|%.2f|%s", f.Trace, f.Load, f.Regime) }

func (c *result) feel(r regime) (felt, error) {
	cluster, err := c.cluster()
	if err != nil {
		return felt{}, err
	}
	agent := model.DefaultConfig()
	rules := agent.Queue
	rules.Placement = queue.Placement(agent.Placement)
	jobs := slices.Clone(c.jobs)
	for i := range jobs {
		if r.nameless {
			jobs[i].Name = ""
		}
		jobs[i].Preemptible = r.stops != nil && r.stops(i)
	}
	cfg := sim.Config{Jobs: jobs, Cluster: cluster, Queue: rules, RestartS: restartS, Seed: c.seed, Estimate: r.says}
	if r.hourly {
		cfg.CheckpointS = 3600
	}
	run := cfg.Run
	if r.baseline != "" {
		p := baselines.Of(r.baseline)
		run = func() (sim.Outcome, error) { return p.Run(cfg) }
	}
	out, err := run()
	if err != nil {
		return felt{}, err
	}
	f := felt{Trace: c.Trace, Part: c.Part, Load: c.Load, GPUs: c.GPUs, Regime: r.name}
	f.measure(out)
	return f, nil
}

// measure computes the figures.
func (f *felt) measure(out sim.Outcome) {
	var done, wide, stops, others []sim.JobResult
	held := 0.0
	for i, j := range out.Jobs {
		held += j.HeldS * float64(j.GPUs) / 3600
		f.MostStops = max(f.MostStops, j.Runs-1)
		if j.Finish < 0 {
			continue
		}
		done = append(done, j)
		if half(i) {
			stops = append(stops, j)
		} else {
			others = append(others, j)
		}
	}
	all := sim.FiguresOf(done)
	f.AvgJCT, f.Makespan = round(all.AvgJCT), round(all.Makespan)
	f.P99 = round(quantile(done, 0.99))
	f.Half, f.Others = round(sim.FiguresOf(stops).AvgJCT), round(sim.FiguresOf(others).AvgJCT)
	f.Lost = round(out.LostGPUh / max(held, 1e-9))
	byWidth := slices.SortedStableFunc(slices.Values(done), func(a, b sim.JobResult) int { return cmp.Compare(b.GPUs, a.GPUs) })
	wide = byWidth[:(len(byWidth)+19)/20]
	for _, j := range wide {
		f.WideWorst = max(f.WideWorst, round(j.Wait))
		f.WideMean += round(j.Wait / float64(len(wide)))
	}
	f.WideP95 = round(quantile(wide, 0.95))
}

func quantile(js []sim.JobResult, part float64) float64 {
	s := make([]float64, len(js))
	for i, j := range js {
		s[i] = baselines.Stretch(j)
	}
	slices.Sort(s)
	if len(s) == 0 {
		return 0
	}
	return s[min(len(s)-1, int(part*float64(len(s))))]
}

// users runs the bench of users: all regimes of the bench on all cells.
func (o options) users() error {
	found, err := workloads(paldata.Dir())
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(s source) bool {
		return !o.only.MatchString(s.trace.Name) || o.part != "" && part(o.part) != s.part
	})
	fs, err := o.feelAll(found)
	if err != nil {
		return err
	}
	if err := write(o.json, func() ([]byte, error) { return json.MarshalIndent(fs, "", " ") }); err != nil {
		return err
	}
	var before []felt
	if o.against != "" {
		text, err := os.ReadFile(o.against)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, &before); err != nil {
			return fmt.Errorf("%s: %w", o.against, err)
		}
	}
	ts, err := predictAll(found)
	if err != nil {
		return err
	}
	return o.publish(usersTables(fs, before, ts, o.of))
}

// publish writes a page, to standard output if no file is named. If a CSV file has all tables, the
// page has only the tables of the half that was not used to choose rules.
func (o options) publish(page []byte) error {
	page = bytes.ReplaceAll(page, []byte("\n\n\n"), []byte("\n\n"))
	if o.csv != "" {
		if err := write(o.csv, func() ([]byte, error) { return cellsOfTables(page) }); err != nil {
			return err
		}
		page = withoutChosen(page)
	}
	if o.tables == "" {
		_, err := os.Stdout.Write(page)
		return err
	}
	return write(o.tables, func() ([]byte, error) { return page, nil })
}

const earlier = "## Against an earlier queue"

// cellsOfTables returns a line of CSV for each cell of a page's tables.
func cellsOfTables(page []byte) ([]byte, error) {
	var b bytes.Buffer
	out := csv.NewWriter(&b)
	lines := [][]string{{"section", "half", "regime", "column", "value"}}
	var section, half string
	var head []string
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		title, isTitle := strings.CutPrefix(line, "## ")
		if isTitle {
			section = title
		}
		if of := strings.TrimSuffix(line, ":"); slices.Contains(halves, of) {
			half, head = of, nil
		}
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") {
			continue
		}
		row := strings.Split(strings.Trim(line, "|"), "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		if head == nil {
			head = row
			continue
		}
		for i, cell := range row[1:] {
			lines = append(lines, []string{section, half, row[0], head[i+1], cell})
		}
	}
	err := out.WriteAll(lines)
	return b.Bytes(), err
}

// withoutChosen removes the comparison with an earlier queue. If the other half has tables, it also
// removes the tables of the half that was used to choose rules.
func withoutChosen(page []byte) []byte {
	const last = "|\n\n"
	text := string(page)
	if before, after, found := strings.Cut(text, "\n"+earlier); found {
		_, after, _ = strings.Cut(after, "\n## ")
		text = before + "\n## " + after
	}
	if !strings.Contains(text, halves[1]+":\n") {
		return []byte(text)
	}
	for {
		before, after, found := strings.Cut(text, halves[0]+":\n")
		if !found {
			return []byte(text)
		}
		_, after, _ = strings.Cut(after, last)
		text = before + after
	}
}

// feelAll makes the runs that are not in o.runs, and returns all runs.
func (o options) feelAll(found []source) ([]felt, error) {
	had, err := keptFelts(o.runs)
	if err != nil {
		return nil, err
	}
	file, err := o.keep()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	rs := regimes()
	var fs []*felt
	var mu sync.Mutex // guards the file
	var g errgroup.Group
	g.SetLimit(o.workers)
	for _, s := range found {
		for _, load := range []float64{0.6, 0.85, 1.1} {
			c := userCell(s, load)
			c.seed = cmp.Or(o.seed, seed)
			for _, r := range rs {
				if o.again != nil && !o.again.MatchString(r.name) {
					continue
				}
				f := felt{Trace: c.Trace, Load: c.Load, Regime: r.name}
				known, ok := had[f.key()]
				fs = append(fs, &known)
				if ok {
					continue
				}
				g.Go(func() (err error) {
					if known, err = c.feel(r); err != nil {
						return err
					}
					mu.Lock()
					defer mu.Unlock()
					return json.NewEncoder(file).Encode(known)
				})
			}
		}
	}
	err = g.Wait()
	all := make([]felt, len(fs))
	for i, f := range fs {
		all[i] = *f
	}
	return all, err
}

// keptFelts reads the results in the file, by their keys, except a line that an interrupted write
// left incomplete.
func keptFelts(path string) (map[string]felt, error) {
	had := map[string]felt{}
	text, err := os.ReadFile(path)
	if path == "" || errors.Is(err, fs.ErrNotExist) {
		return had, nil
	}
	for line := range bytes.Lines(text) {
		var f felt
		if json.Unmarshal(line, &f) == nil {
			had[f.key()] = f
		}
	}
	return had, err
}

// userCell is a trace at a load. The workloads of the PAL artifact keep their cluster, on which
// their load is about 1; other loads scale their submission times.
func userCell(s source, load float64) *result {
	c := &result{cell: cell{Trace: s.trace.Name, Part: s.part, TaskGPUs: nodeGPUs, NodeGPUs: nodeGPUs, Load: load, Jobs: len(s.trace.Jobs)}}
	if strings.HasPrefix(s.trace.Name, siaName) {
		c.GPUs, c.TaskGPUs, c.NodeGPUs = siaGPUs, siaNodeGPUs, siaNodeGPUs
	}
	if c.jobs = inTasks(s.trace.Jobs, c.TaskGPUs); c.GPUs == 0 {
		c.fit()
	} else {
		for i := range c.jobs {
			c.jobs[i].SubmitS /= load
		}
	}
	c.Outliers = max(1, c.GPUs/outlierOf)
	return c
}

const usersText = `# What users gain from estimates and checkpoints

Written by %s, in one run, on %s. The first %d jobs of each trace run at 60, 85 and 110 %% load.
The traces come from Philly's virtual clusters, from Gavel, and from Sia-Philly on its 64 GPUs (with faster or slower arrivals). Generated traces
have heavy tails, sweeps, days and nights, or wide gangs behind small ones. Nodes have 8 GPUs with the variability of Longhorn; one GPU in
64 is an outlier. A stopped gang loses %d s.

Figures are geometric means over cells; "worst" is the worst cell. Slowdown is completion time divided by work. "Wide" gangs are
the widest 5 %%. The CSV file beside this page also has the traces
and seeds used to choose the rules, and the comparison with an earlier queue.

Users' guesses are round numbers, mostly 2 to 10 times too long; one in seven is too short. "Guesses too short" are up to 5 times too short.
In "half estimate", half of the jobs have estimates, too long or too short by a factor of up to five, and no job has a name.

## The cost of giving no estimates and allowing no stops

All figures are relative to the first row, in which users give no estimates and no job may be stopped. Every row simulates the same jobs on the same cluster.

`

// usersTables compares each regime with the one in which users give no run time estimates and the
// queue may stop no jobs. If there are earlier results, usersTables also compares each regime with
// its own earlier result.
func usersTables(now, before []felt, ts []predictionLoss, of string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, usersText, "`make sim-users`", time.Now().UTC().Format(time.DateOnly), usersJobs, restartS)
	nothing := func(f felt) felt { f.Regime = sayNothing; return f }
	compared(&b, ownLines(), now, now, nothing)
	if len(before) > 0 {
		fmt.Fprintf(&b, "\n"+earlier+"\n\nEach line over itself%s.\n\n", of)
		before = slices.DeleteFunc(slices.Clone(before), func(f felt) bool { return !ofOurs(f) })
		compared(&b, ownLines(), now, before, func(f felt) felt { return f })
	}
	sidesTables(&b, now)
	wideTables(&b, now)
	runTimesTables(&b, ts)
	return append(bytes.TrimSpace(b.Bytes()), '\n')
}

// ofOurs reports whether a result is of our policy, not of a baseline.
func ofOurs(f felt) bool {
	return slices.ContainsFunc(regimes(), func(r regime) bool { return r.name == f.Regime && r.baseline == "" })
}

// compared writes one line per regime: the regime's results relative to the results that key names.
// A half of the traces that has no results gets no table.
func compared(b *bytes.Buffer, rs []regime, now, before []felt, key func(felt) felt) {
	was := map[string]felt{}
	for _, f := range before {
		was[f.key()] = f
	}
	for i, p := range []part{chosen, reported} {
		if !slices.ContainsFunc(now, func(f felt) bool { return f.Part == p }) {
			continue
		}
		fmt.Fprintf(b, "%s:\n\n| | cells | average | worst cell | p99 slowdown | wide: worst wait | wide: mean wait | wide: p95 slowdown | makespan | worst cell | stops of the most-stopped gang: median cell, worst cell | GPU time lost: median cell, worst cell |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n",
			halves[i])
		for _, r := range rs {
			var fs []felt
			old := map[string]felt{}
			for _, f := range now {
				w, ok := was[key(f).key()]
				if f.Part == p && f.Regime == r.name && ok && w.AvgJCT > 0 {
					fs, old[f.key()] = append(fs, f), w
				}
			}
			if len(fs) > 0 {
				line(b, r.name, fs, old)
			}
		}
		fmt.Fprintln(b)
	}
}

func line(b *bytes.Buffer, name string, fs []felt, was map[string]felt) {
	over := func(of func(felt) float64) (mean, worst float64) {
		sum := 0.0
		for _, f := range fs {
			ratio := of(f) / of(was[f.key()])
			sum, worst = sum+math.Log(ratio), max(worst, ratio)
		}
		return math.Exp(sum / float64(len(fs))), worst
	}
	// Waits can be 0, so a minute is added to both waits in a ratio.
	avg, worst := over(func(f felt) float64 { return f.AvgJCT })
	p99, _ := over(func(f felt) float64 { return f.P99 })
	wideWorst, _ := over(func(f felt) float64 { return f.WideWorst + 60 })
	wideMean, _ := over(func(f felt) float64 { return f.WideMean + 60 })
	wideP95, _ := over(func(f felt) float64 { return f.WideP95 })
	span, spanWorst := over(func(f felt) float64 { return f.Makespan })
	stops, lost := make([]int, len(fs)), make([]float64, len(fs))
	for i, f := range fs {
		stops[i], lost[i] = f.MostStops, 100*f.Lost
	}
	slices.Sort(stops)
	slices.Sort(lost)
	fmt.Fprintf(b, "| %s | %d | %.3f | %.2f | %.3f | %.2f | %.2f | %.2f | %.3f | %.2f | %d, %d | %.1f %%, %.1f %% |\n", name, len(fs), avg, worst, p99, wideWorst, wideMean, wideP95, span, spanWorst,
		stops[len(stops)/2], stops[len(stops)-1], lost[len(lost)/2], lost[len(lost)-1])
}
