// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package simulate is `nomad-pal simulate`: it simulates a trace, a generated workload or the
// history of a Nomad cluster under a policy. The command reports what would happen to the jobs, as
// a table, JSON, CSV or an HTML page with plots.
package simulate

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// options are the command line.
type options struct {
	Command
	trace       string
	strict      bool
	generate    string
	jobs        int
	load        float64
	fromNomad   bool
	fromHistory bool
	since       string
	until       string
	profile     string
	nodes       int
	gpusPerNode int
	rackNodes   int
	fleet       fleet
	speeds      string
	outliers    int
	locality    localityFlag
	policy      string
	queueFlags  queueFlags
	preempt     bool
	restart     time.Duration
	checkpoint  time.Duration
	mtbf        time.Duration
	repair      time.Duration
	estimates   string
	progress    float64 // share of the jobs that report their progress
	rendezvous  time.Duration
	tenant      string
	elastic     float64 // share of the gangs that become elastic
	config      []string
	rules       model.Config // the agent's rules: from -config, then the flags
	seed        uint64
	json        bool
	csv         string
	html        string
	quiet       bool
	begin       time.Time       // date at simulated time 0
	set         map[string]bool // flags given on the command line
}

// localityFlag is the value of -locality: one penalty across nodes, or TIER=PENALTY,….
type localityFlag struct {
	text string
	pal.Locality
}

func (l *localityFlag) String() string { return l.text }

func (l *localityFlag) Set(s string) error {
	var loc pal.Locality
	if !strings.Contains(s, "=") {
		s = "node=1,cluster=" + s
	}
	for _, kv := range strings.Split(s, ",") {
		name, v, _ := strings.Cut(kv, "=")
		t, err := pal.ParseTier(name)
		if err != nil {
			return err
		}
		var p float64
		if _, err := fmt.Sscanf(v, "%g", &p); err != nil || t == 0 {
			return fmt.Errorf("%q is not TIER=PENALTY", kv)
		}
		for c := range pal.NumClasses {
			loc[t][c] = p
		}
	}
	if err := loc.Validate(); err != nil {
		return err
	}
	l.text, l.Locality = s, loc
	return nil
}

// section is a part of the help.
type section struct {
	title string
	add   func(*flag.FlagSet)
}

func (o *options) sections() []section {
	return []section{
		{"Jobs:", o.jobFlags}, {"Cluster:", o.clusterFlags}, {"Policy:", o.policyFlags},
		{"Settings of the agent's queue (-config sets all keys of its block queue):", o.queueFlags.add}, {"Output:", o.outputFlags},
	}
}

// parse reads the command line; it returns flag.ErrHelp for -help.
func (c Command) parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{Command: c, set: map[string]bool{}}
	o.locality = localityFlag{"1.7", pal.TwoTier(pal.DefaultPenalty)}
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
		return nil, fmt.Errorf("%w; see nomad-pal simulate -help", err)
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
	f.BoolVar(&o.strict, "strict", false, "refuse a trace if a job would be left out")
	f.BoolVar(&o.fromNomad, "from-nomad", false, "replay the cluster and the job history of NOMAD_ADDR")
	f.BoolVar(&o.fromHistory, "from-history", false, "replay the cluster of NOMAD_ADDR and the jobs in the agent's history (as nomad-pal history reads it)")
	f.StringVar(&o.since, "since", "", "with -from-history: only runs from `TIME` on, such as 30d or 2026-11-01")
	f.StringVar(&o.until, "until", "", "with -from-history: only runs until `TIME`")
	f.StringVar(&o.tenant, "tenant", "", "only jobs of the trace that belong to the tenant `NAME`")
	f.StringVar(&o.generate, "generate", "sia", "without -trace, -from-nomad and -from-history: generate jobs as sia (a small cluster, large gangs) or heavy (a large shared cluster, many tenants)")
	f.IntVar(&o.jobs, "jobs", 160, "how many jobs to generate")
	f.Float64Var(&o.load, "load", 1, "factor of the arrival rate: with 2, jobs arrive twice as fast")
	f.StringVar(&o.speeds, "speeds", "", "read from `FILE` how fast the applications of the jobs run on each GPU model: columns model, gpu_model and rate (work per second)")
	f.BoolVar(&o.preempt, "preempt", false, "all gangs allow the queue to stop and move them (pal_preempt)")
	f.DurationVar(&o.checkpoint, "checkpoint", 0, "time from one checkpoint of a gang to the next (pal_checkpoint): a stop loses the work since the last checkpoint; 0: it loses none")
	f.StringVar(&o.estimates, "estimates", "none", "users' estimates of run times: none (only those of the trace), exact, users (too long and round), or wrong:F (off by a factor of up to F either way)")
	f.Float64Var(&o.progress, "progress", 0, "share of the jobs that report their progress (pal_progress), from 0 to 1")
	f.Float64Var(&o.elastic, "elastic", 0, "share of the gangs to make elastic (pal_elastic), from 0 to 1: they then run with half to twice their members")
}

func (o *options) clusterFlags(f *flag.FlagSet) {
	f.IntVar(&o.nodes, "nodes", 16, "nodes of the cluster")
	f.IntVar(&o.gpusPerNode, "gpus-per-node", 4, "GPUs of a node")
	f.IntVar(&o.rackNodes, "rack-nodes", 0, "nodes of a rack; 0: racks are unknown")
	f.Var(&o.fleet, "gpus", "a cluster of several GPU models in place of -nodes: `COUNTxMODEL,…`, such as 16xV100,16xP100; a node has -gpus-per-node GPUs of one model, and -outliers and -profile apply to each model")
	f.StringVar(&o.profile, "profile", "", "measurements to draw the GPUs from: a `file` that nomad-pal profile export or nomad-device-pal measure wrote, or a table with the columns gpu, app (A to D) and time; default: as the GPUs of a published cluster (TACC Longhorn)")
	f.IntVar(&o.outliers, "outliers", -1, "without -profile: how many GPUs are outliers; -1: as many as measured")
	f.Var(&o.locality, "locality", "slowdown of a gang across nodes, or `TIER=PENALTY,…` (island, numa, node, rack, datacenter, cluster)")
	f.DurationVar(&o.mtbf, "mtbf", 0, "mean time between failures of one GPU, at least 1h; 0: none fail")
	f.DurationVar(&o.repair, "repair", 12*time.Hour, "mean time to repair a GPU")
}

func (o *options) policyFlags(f *flag.FlagSet) {
	d := model.DefaultConfig()
	f.Func("config", "the agent's configuration `FILE` or directory, may be repeated; its placement, locality, calibration, queue, windows and tenants apply unless a flag overrides them", func(s string) error {
		o.config = append(o.config, s)
		return nil
	})
	f.StringVar(&o.policy, "policy", string(d.Placement), "placement (pal, pm-first, packed, spread, random) under the agent's queue, or one of the policies above")
	f.DurationVar(&o.restart, "restart-cost", d.RestartCost, "run time that a gang loses when it is stopped or moved")
	f.DurationVar(&o.rendezvous, "rendezvous", 30*time.Minute, "for policies nomad and nomad-spread: the time, at least 10s, after which an incomplete gang gives up and starts again; 0: never")
	o.begin = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)
	f.Func("begin", "when the trace begins, as `TIME` such as 2024-01-01T00:00:00Z (the default, a Monday): for the windows of -config", func(s string) (err error) {
		o.begin, err = time.Parse(time.RFC3339, s)
		return err
	})
}

func (o *options) outputFlags(f *flag.FlagSet) {
	f.Uint64Var(&o.seed, "seed", 42, "seed of all random numbers; the same seed gives the same report, byte for byte")
	f.BoolVar(&o.json, "json", false, "print the report as JSON")
	f.StringVar(&o.csv, "csv", "", "write one line per job to `FILE`")
	f.StringVar(&o.html, "html", "", "write a report with plots to `FILE`, readable offline")
	f.BoolVar(&o.quiet, "quiet", false, "no progress on standard error")
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

// leastMTBF and leastRendezvous are the minimums of -mtbf and -rendezvous. With less, GPUs would
// fail or gangs would give up all the time, and the simulation might never end.
const (
	leastMTBF       = time.Hour
	leastRendezvous = 10 * time.Second
)

// ofNomad reports whether the cluster to simulate is read from Nomad.
func (o *options) ofNomad() bool { return o.fromNomad || o.fromHistory }

func (o *options) check() error {
	switch {
	case o.nodes <= 0 || o.gpusPerNode <= 0:
		return errors.New("-nodes and -gpus-per-node must be positive")
	case !(o.load > 0):
		return fmt.Errorf("-load %v must be positive", o.load)
	case o.restart < 0 || o.checkpoint < 0:
		return fmt.Errorf("-restart-cost %v and -checkpoint %v must not be negative", o.restart, o.checkpoint)
	case o.mtbf < 0 || o.repair < 0 || o.rendezvous < 0:
		return fmt.Errorf("-mtbf %v, -repair %v and -rendezvous %v must not be negative", o.mtbf, o.repair, o.rendezvous)
	case o.mtbf > 0 && o.mtbf < leastMTBF:
		return fmt.Errorf("-mtbf %v is below %v: no job could finish", o.mtbf, leastMTBF)
	case o.rendezvous > 0 && o.rendezvous < leastRendezvous:
		return fmt.Errorf("-rendezvous %v is below %v: no program gives up so soon", o.rendezvous, leastRendezvous)
	case o.jobs <= 0:
		return fmt.Errorf("-jobs %d must be positive", o.jobs)
	case o.fromNomad && o.trace != "":
		return errors.New("-from-nomad cannot be combined with -trace")
	case o.fromHistory && (o.fromNomad || o.trace != ""):
		return errors.New("-from-history cannot be combined with -from-nomad or -trace")
	case !o.fromHistory && (o.since != "" || o.until != ""):
		return errors.New("-since and -until go with -from-history only")
	case o.seed > 1<<32-1:
		return fmt.Errorf("-seed %d is above %d", o.seed, uint32(1<<32-1))
	case !(o.elastic >= 0 && o.elastic <= 1):
		return fmt.Errorf("-elastic %v is not between 0 and 1", o.elastic)
	case !(o.progress >= 0 && o.progress <= 1):
		return fmt.Errorf("-progress %v is not between 0 and 1", o.progress)
	}
	return o.checkModels()
}
