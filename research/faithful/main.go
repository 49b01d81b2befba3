// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command faithful runs a trace as the PAL artifact's simulator does: with its rounds of 360 s, its
// draws of GPUs, and its filler jobs until the trace is done. With the artifact's own policies and
// orders, the command reproduces the artifact's results. With an order of pal/queue, the command
// shows this order under the same conditions.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/paldata"
	"github.com/nomad-pal/nomad-pal/bench/workload"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/research/artifact"
	"github.com/nomad-pal/nomad-pal/research/pyrandom"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// The artifact's round, in seconds, and the arrival rate of its filler jobs, in jobs per hour.
const (
	roundS   = 360
	loadPerH = 2
)

type options struct {
	trace, policy, order, track string
	files                       artifact.Files
	across                      float64
	nodes, gpusPerNode          int
	seed                        uint
	preempt, compare            bool
}

// report is the result of a run. Times are in seconds.
type report struct {
	Trace       string  `json:"trace"`
	Policy      string  `json:"policy"`
	Order       string  `json:"order"`
	AvgJCT      float64 `json:"avg_jct_s"`
	GeoJCT      float64 `json:"geomean_jct_s"`
	MaxJCT      float64 `json:"max_jct_s"`
	Makespan    float64 `json:"makespan_s"`
	Utilization float64 `json:"utilization"`
	Jobs        []job   `json:"jobs"`
}

type job struct {
	ID     string  `json:"id"`
	Start  float64 `json:"start_s"`
	Finish float64 `json:"finish_s"`
	Wait   float64 `json:"wait_s"`
}

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "faithful: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.compare {
		return o.compareAll(strings.Split(o.trace, ","), stdout)
	}
	r, err := o.simulate()
	if err != nil {
		return err
	}
	e := json.NewEncoder(stdout)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// simulate draws the GPUs and runs the trace.
func (o *options) simulate() (report, error) {
	t, err := workload.ReadSia(o.trace)
	if err != nil {
		return report{}, err
	}
	for _, j := range t.Jobs {
		if all := o.nodes * o.gpusPerNode; j.GPUs > all {
			return report{}, fmt.Errorf("%s:%d: job %q needs %d GPUs, but the cluster has %d", t.Name, j.Line, j.ID, j.GPUs, all)
		}
	}
	if len(t.Jobs) == 0 {
		return report{}, fmt.Errorf("trace %q has no job", o.trace)
	}
	rows, err := o.files.Read()
	if err != nil {
		return report{}, err
	}
	p, scores, err := artifact.DrawRows(o.nodes, o.gpusPerNode, rows, uint32(o.seed))
	if err != nil {
		return report{}, err
	}
	c, err := artifact.Cluster(p, pal.TwoTier(o.across))
	if err != nil {
		return report{}, err
	}
	var res artifact.Result
	if slices.Contains(artifact.Orders(), o.order) {
		res, err = o.repeat(t, c, scores)
	} else {
		res, err = o.ours(t, c)
	}
	return o.report(t, res), err
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("faithful", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.trace, "trace", "", "read jobs from `FILE`")
	f.Func("profile", "measurements to draw the GPUs from, `A=FILE,B=FILE,C=FILE,D=FILE`; default: the artifact's, in the directory "+paldata.Env, o.setProfile)
	f.StringVar(&o.policy, "policy", "pal", "placement: "+strings.Join(artifact.Policies(), ", ")+"; with an order of pal/queue: pal, pm-first, packed, spread or random")
	f.StringVar(&o.order, "order", "fifo", "order: "+strings.Join(artifact.Orders(), ", ")+", or another one of pal/queue, such as adaptive, with the agent's default queue")
	f.BoolVar(&o.preempt, "preempt", false, "with an order of pal/queue: gangs may be stopped and moved")
	f.BoolVar(&o.compare, "compare", false, "print the results of -order, without and with -preempt, as ratios to the artifact's PAL under FIFO; -trace may list several files, separated by commas")
	f.Float64Var(&o.across, "locality", pal.DefaultPenalty, "slowdown of a gang across nodes")
	f.IntVar(&o.nodes, "nodes", 16, "number of nodes")
	f.IntVar(&o.gpusPerNode, "gpus-per-node", 4, "GPUs per node")
	f.StringVar(&o.track, "track", "", "track only jobs `FROM-TO` (default: the whole trace)")
	f.UintVar(&o.seed, "seed", 42, "seed to draw the GPUs, below 2³²")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("argument %q is not a flag", f.Arg(0))
	case o.trace == "":
		return nil, errors.New("-trace has no file")
	case o.nodes <= 0 || o.gpusPerNode <= 0:
		return nil, errors.New("-nodes and -gpus-per-node must be positive")
	case o.seed > math.MaxUint32:
		return nil, fmt.Errorf("-seed %d is above %d", o.seed, uint32(math.MaxUint32))
	}
	if o.files == (artifact.Files{}) {
		if paldata.Dir() == "" {
			return nil, fmt.Errorf("-profile is not given and %s is not set", paldata.Env)
		}
		o.files = artifact.Longhorn(paldata.Dir())
	}
	return o, nil
}

func (o *options) setProfile(s string) error {
	for _, kv := range strings.Split(s, ",") {
		name, file, ok := strings.Cut(kv, "=")
		if !ok || file == "" {
			return fmt.Errorf("%q is not CLASS=FILE", kv)
		}
		class, err := pal.ParseAppClass(name)
		if err != nil {
			return err
		}
		o.files[class.Index()] = file
	}
	return nil
}

// repeat runs the trace under a policy and an order of the artifact.
func (o *options) repeat(t trace.Trace, c *pal.Cluster, scores *pyrandom.Rand) (artifact.Result, error) {
	from, to := 0, len(t.Jobs)-1
	if o.track != "" {
		if _, err := fmt.Sscanf(o.track, "%d-%d", &from, &to); err != nil || from < 0 || to < from || to >= len(t.Jobs) {
			return artifact.Result{}, fmt.Errorf("-track %q is not a range FROM-TO within 0-%d", o.track, len(t.Jobs)-1)
		}
	}
	return artifact.Run{Jobs: t.Jobs, From: from, To: to, Cluster: c, Policy: o.policy, Order: o.order,
		RoundS: roundS, LoadPerH: loadPerH, Fillers: true, Scores: scores, Arrivals: pyrandom.New(1)}.Run()
}

// ours runs an order of pal/queue in the artifact's rounds and with its filler jobs.
func (o *options) ours(t trace.Trace, c *pal.Cluster) (artifact.Result, error) {
	if o.track != "" {
		return artifact.Result{}, fmt.Errorf("-track cannot be combined with -order %s", o.order)
	}
	name, err := pal.ParsePolicy(o.policy)
	if err != nil {
		return artifact.Result{}, err
	}
	rules := model.DefaultConfig()
	cfg := sim.Config{Jobs: t.Jobs, Cluster: c, Queue: rules.Queue, RestartS: rules.RestartCost.Seconds(),
		Preemptible: o.preempt, RoundS: roundS,
		Estimate: func(_ int, j trace.Job) time.Duration { return time.Duration(j.EstimateS * float64(time.Second)) }}
	cfg.Queue.Order, cfg.Queue.Placement = queue.Order(o.order), queue.Placement(name)
	arrivals, n, at := pyrandom.New(1), 0, t.Jobs[len(t.Jobs)-1].SubmitS
	cfg.More = func() trace.Job {
		j := t.Jobs[n%len(t.Jobs)]
		at += math.Ceil(-math.Log(1-arrivals.Float64()) / loadPerH * 3600)
		j.ID, j.SubmitS = fmt.Sprintf("%s+%d", j.ID, 1+n/len(t.Jobs)), at
		n++
		return j
	}
	out, err := cfg.Run()
	return artifact.Result{Jobs: out.Jobs, Utilization: out.Utilization}, err
}

func (o *options) report(t trace.Trace, res artifact.Result) report {
	f := sim.FiguresOf(res.Jobs)
	r := report{Trace: t.Name, Policy: o.policy, Order: o.order, AvgJCT: f.AvgJCT, GeoJCT: f.GeoJCT, MaxJCT: f.MaxJCT,
		Makespan: f.Makespan, Utilization: res.Utilization}
	for _, j := range res.Jobs {
		r.Jobs = append(r.Jobs, job{j.ID, j.Start, j.Finish, j.Wait})
	}
	return r
}

// compareAll runs the traces under the order, without and with preemption. compareAll prints the
// average JCT and the makespan as ratios to the values of the artifact's PAL under FIFO, and the
// geometric means of these ratios over the traces.
func (o *options) compareAll(traces []string, stdout io.Writer) error {
	if slices.Contains(artifact.Orders(), o.order) {
		return fmt.Errorf("-compare does not work with %q, an order of the artifact: choose an order of pal/queue", o.order)
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "ratios to PAL under FIFO\taverage\tmakespan\taverage, preempting\tmakespan, preempting\n")
	var logs [4]float64
	for _, file := range traces {
		var of [3]report
		for i, run := range []options{{policy: "pal", order: "fifo"}, {policy: o.policy, order: o.order}, {policy: o.policy, order: o.order, preempt: true}} {
			one := *o
			one.trace, one.policy, one.order, one.preempt = file, run.policy, run.order, run.preempt
			r, err := one.simulate()
			if err != nil {
				return fmt.Errorf("%s under %s: %w", file, one.order, err)
			}
			of[i] = r
		}
		ratios := [4]float64{of[1].AvgJCT / of[0].AvgJCT, of[1].Makespan / of[0].Makespan, of[2].AvgJCT / of[0].AvgJCT, of[2].Makespan / of[0].Makespan}
		line(w, of[0].Trace, ratios)
		for i, r := range ratios {
			logs[i] += math.Log(r) / float64(len(traces))
		}
	}
	for i := range logs {
		logs[i] = math.Exp(logs[i])
	}
	line(w, "geometric mean", logs)
	return w.Flush()
}

func line(w io.Writer, name string, ratios [4]float64) {
	fmt.Fprint(w, name)
	for _, r := range ratios {
		fmt.Fprintf(w, "\t%.3f", r)
	}
	fmt.Fprintln(w)
}
