// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package simulate is `nomad-pal simulate`: it simulates a trace, a generated workload or the
// history of a Nomad cluster under a policy. The command reports what would happen to the jobs, as
// a table, JSON or an HTML page with plots.
package simulate

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/nomad-pal/nomad-pal/internal/nearest"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// options are the command line.
type options struct {
	Command
	trace       string
	generate    string
	jobs        int
	fromHistory bool
	since       string
	profile     string
	nodes       int
	gpusPerNode int
	fleet       fleet
	outliers    int
	policy      string
	settings    settings
	preempt     bool
	checkpoint  time.Duration
	estimates   string
	config      []string
	rules       model.Config // the agent's rules: from -config, then the flags
	seed        uint64
	json        bool
	html        string
	set         map[string]bool // flags given on the command line
}

// section is a part of the help.
type section struct {
	title string
	add   func(*flag.FlagSet)
}

func (o *options) sections() []section {
	return []section{
		{"Jobs:", o.jobFlags}, {"Cluster:", o.clusterFlags}, {"Policy:", o.policyFlags}, {"Output:", o.outputFlags},
	}
}

// parse reads the command line; it returns flag.ErrHelp for -help.
func (c Command) parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{Command: c, set: map[string]bool{}}
	f := flag.NewFlagSet("simulate", flag.ContinueOnError)
	f.SetOutput(io.Discard) // so that an error is one line, without the whole help
	for _, g := range o.sections() {
		g.add(f)
	}
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		o.help(stderr)
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w%s; see nomad-pal simulate -help", err, nearest.Option(f, err))
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("argument %q is not a flag", f.Arg(0))
	}
	f.Visit(func(f *flag.Flag) { o.set[f.Name] = true })
	if err := o.check(); err != nil {
		return nil, err
	}
	return o, o.settle()
}

func (o *options) jobFlags(f *flag.FlagSet) {
	f.StringVar(&o.trace, "trace", "", "read jobs from `FILE`: what sacct -P writes, or a table of your own; the file may be compressed with gzip")
	f.BoolVar(&o.fromHistory, "from-history", false, "replay the cluster of NOMAD_ADDR and the jobs in the agent's history (as nomad-pal history reads it)")
	f.StringVar(&o.since, "since", "", "with -from-history: only runs from `TIME` on, such as 30d or 2026-11-01")
	f.StringVar(&o.generate, "generate", "sia", "without -trace and -from-history: generate jobs as sia (a small cluster, large gangs) or heavy (a large shared cluster, many tenants)")
	f.IntVar(&o.jobs, "jobs", 160, "how many jobs to generate")
	f.BoolVar(&o.preempt, "preempt", false, "all gangs allow the queue to stop and move them (pal_preempt)")
	f.DurationVar(&o.checkpoint, "checkpoint", 0, "time from one checkpoint of a gang to the next (pal_checkpoint): a stop loses the work since the last checkpoint; 0: a stop loses no work")
	f.StringVar(&o.estimates, "estimates", "none", "users' estimates of run times: none (only those of the trace), exact, users (too long and round), or wrong:F (off by a factor of up to F either way)")
}

func (o *options) clusterFlags(f *flag.FlagSet) {
	f.IntVar(&o.nodes, "nodes", 16, "nodes of the cluster")
	f.IntVar(&o.gpusPerNode, "gpus-per-node", 4, "GPUs of a node")
	f.Var(&o.fleet, "gpus", "a cluster of several GPU models in place of -nodes: `COUNTxMODEL,…`, such as 16xV100,16xP100; a node has -gpus-per-node GPUs of one model, and -outliers and -profile apply to each model")
	f.StringVar(&o.profile, "profile", "", "measurements to draw the GPUs from: a `file` that nomad-pal profile export or nomad-device-pal measure wrote, or a table with the columns gpu, app (A to D) and time; default: as the GPUs of a published cluster (TACC Longhorn)")
	f.IntVar(&o.outliers, "outliers", -1, "without -profile: how many GPUs are outliers; -1: as many as measured")
}

func (o *options) policyFlags(f *flag.FlagSet) {
	d := model.DefaultConfig()
	f.Func("config", "the agent's configuration `FILE` or directory, may be repeated; its placement, locality, calibration, queue and tenants apply unless a flag overrides them", func(s string) error {
		o.config = append(o.config, s)
		return nil
	})
	o.settings = settings{}
	f.Var(o.settings, "set", "`KEY=VALUE` in the agent's block queue, such as order=fifo or restart_cost=2m; may be repeated. With migrate=true, all gangs may be moved (pal_migrate), not only those that may be stopped (-preempt)")
	f.StringVar(&o.policy, "policy", string(d.Placement), "placement (pal, pm-first, packed, spread, random) under the agent's queue, or one of the policies above")
}

func (o *options) outputFlags(f *flag.FlagSet) {
	f.Uint64Var(&o.seed, "seed", 42, "seed of all random numbers; the same seed gives the same report, byte for byte")
	f.BoolVar(&o.json, "json", false, "print the report as JSON")
	f.StringVar(&o.html, "html", "", "write a report with plots to `FILE`, readable offline")
}

const usage = `Usage: nomad-pal simulate [options]

Plays a workload under a policy and reports what would happen to the jobs.
The defaults are those of "nomad-pal agent"; -config reads its configuration.
To compare, run the same workload under other settings, or under a policy that
the agent does not have. Such policies cannot be combined with settings of the
queue:

`

// help writes the help.
func (o *options) help(w io.Writer) {
	fmt.Fprint(w, usage)
	for _, p := range o.baselines() {
		fmt.Fprintf(w, "  %s\n    \t%s\n", p.Name, p.About)
	}
	for _, g := range o.sections() {
		f := flag.NewFlagSet("simulate", flag.ContinueOnError)
		g.add(f)
		f.SetOutput(w)
		fmt.Fprintf(w, "\n%s\n\n", g.title)
		f.PrintDefaults()
	}
}
