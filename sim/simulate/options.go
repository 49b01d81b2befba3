// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package simulate is `nomad-pal simulate`: it simulates a trace, a generated workload or the
// history of a Nomad cluster under a policy. The command reports what would happen to the jobs, as
// a table, JSON, CSV or an HTML page with plots.
package simulate

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// options are the command line.
type options struct {
	trace       string
	strict      bool
	generate    string
	jobs        int
	load        float64
	fromNomad   bool
	fromHistory bool
	since       string
	until       string
	past        PastRuns
	profile     string
	nodes       int
	gpusPerNode int
	rackNodes   int
	cluster     string
	fleet       fleet
	speeds      string
	choice      string // how to choose GPU models
	sharing     sharing
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
	drift       float64 // how wrong the reports are
	rendezvous  time.Duration
	limit       bool
	tenant      string
	taskGPUs    int
	elastic     trace.Elastic
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

// parse reads the command line; it returns flag.ErrHelp for -help.
func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{set: map[string]bool{}}
	o.locality = localityFlag{"1.7", pal.TwoTier(pal.DefaultPenalty)}
	f := flag.NewFlagSet("simulate", flag.ContinueOnError)
	f.SetOutput(io.Discard) // so that an error is one line, without the whole help
	o.inputFlags(f)
	o.policyFlags(f)
	o.modelFlags(f)
	o.sharing.flags(f)
	f.Uint64Var(&o.seed, "seed", 42, "seed of all random numbers; the same seed gives the same report, byte for byte")
	f.BoolVar(&o.json, "json", false, "print the report as JSON")
	f.StringVar(&o.csv, "csv", "", "write one line per job to `FILE`")
	f.StringVar(&o.html, "html", "", "write a report with plots to `FILE`, readable offline")
	f.BoolVar(&o.quiet, "quiet", false, "no progress on standard error")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stderr, usage)
		describePolicies(stderr)
		fmt.Fprint(stderr, "Options:\n\n")
		f.SetOutput(stderr)
		f.PrintDefaults()
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

func (o *options) inputFlags(f *flag.FlagSet) {
	f.StringVar(&o.trace, "trace", "", "read jobs from `FILE`: what sacct -P writes, a table of your own, or a published trace (Sia, Philly, Helios, Acme, Alibaba 2020, 2023 and 2026); the file may be compressed with gzip")
	f.BoolVar(&o.strict, "strict", false, "refuse a trace if a job would be left out")
	f.StringVar(&o.tenant, "tenant", "", "only jobs of the trace that belong to `NAME`, a virtual cluster or user")
	f.IntVar(&o.taskGPUs, "task-gpus", 0, "write gangs as tasks of up to this many GPUs, each on one node; 1: tasks of one GPU, on any node; 0: as in the trace")
	f.Float64Var(&o.elastic.Share, "elastic", 0, "share of the gangs to make elastic (pal_elastic), from 0 to 1")
	o.elastic.Least, o.elastic.Most = 0.5, 2
	f.Func("elastic-members", "with -elastic: minimum and maximum number of members, as `LOW:HIGH` multiples of the number in the trace (default 0.5:2)", func(s string) error {
		if n, err := fmt.Sscanf(s, "%g:%g", &o.elastic.Least, &o.elastic.Most); n != 2 || err != nil || !(0 < o.elastic.Least && o.elastic.Least <= 1 && 1 <= o.elastic.Most) {
			return fmt.Errorf("want LOW:HIGH with 0 < LOW ≤ 1 ≤ HIGH, such as 0.5:2")
		}
		return nil
	})
	f.Float64Var(&o.elastic.Efficiency, "elastic-efficiency", 1, "with -elastic: the share of a linear speed-up that each doubling of the members gives (pal_elastic_efficiency)")
	f.StringVar(&o.generate, "generate", "sia", "without -trace: generate jobs as sia (Sia-Philly-like), heavy (large shared cluster) or mixed (applications that differ in how fast they run on each GPU model; with -gpus)")
	f.IntVar(&o.jobs, "jobs", 160, "how many jobs to generate")
	f.Float64Var(&o.load, "load", 1, "factor of the arrival rate: with 2, jobs arrive twice as fast")
	f.BoolVar(&o.fromNomad, "from-nomad", false, "replay the cluster and the job history of NOMAD_ADDR")
	f.BoolVar(&o.fromHistory, "from-history", false, "replay the cluster of NOMAD_ADDR and the jobs in the agent's history (as nomad-pal history reads it)")
	f.StringVar(&o.since, "since", "", "with -from-history: only runs from `TIME` on, such as 30d or 2026-11-01")
	f.StringVar(&o.until, "until", "", "with -from-history: only runs until `TIME`")
	f.StringVar(&o.profile, "profile", "", "measurements to draw the GPUs from: a `file` that nomad-pal profile export or nomad-device-pal measure wrote, or a table with the columns gpu, app (A to D) and time")
	f.IntVar(&o.nodes, "nodes", 16, "nodes of the cluster")
	f.IntVar(&o.gpusPerNode, "gpus-per-node", 4, "GPUs of a node")
	f.IntVar(&o.rackNodes, "rack-nodes", 0, "nodes of a rack; 0: racks are unknown")
	f.StringVar(&o.cluster, "cluster", "longhorn", "without -profile: the cluster whose published variability to use (longhorn, frontera, lonestar6)")
	f.IntVar(&o.outliers, "outliers", -1, "without -profile: how many GPUs are outliers; -1: as many as measured")
	f.Var(&o.locality, "locality", "slowdown of a gang across nodes, or `TIER=PENALTY,…` (island, numa, node, rack, datacenter, cluster)")
	f.DurationVar(&o.mtbf, "mtbf", 0, "mean time between failures of one GPU, at least 1h; 0: none fail")
	f.DurationVar(&o.repair, "repair", 12*time.Hour, "mean time to repair a GPU")
}

func (o *options) policyFlags(f *flag.FlagSet) {
	d := model.DefaultConfig()
	f.Func("config", "the agent's configuration `FILE` or directory, may be repeated; its placement, locality, calibration, queue and tenants apply unless a flag overrides them", func(s string) error {
		o.config = append(o.config, s)
		return nil
	})
	f.StringVar(&o.policy, "policy", string(d.Placement), "placement (pal, pm-first, packed, spread, random) under the agent's queue, or one of the policies above")
	o.queueFlags.add(f, d)
	f.BoolVar(&o.preempt, "preempt", false, "all gangs allow the queue to stop and move them (pal_preempt)")
	f.DurationVar(&o.restart, "restart-cost", d.RestartCost, "run time that a gang loses when it is stopped or moved")
	f.DurationVar(&o.checkpoint, "checkpoint", 0, "time from one checkpoint of a gang to the next (pal_checkpoint): a stop loses the work since the last checkpoint; 0: it loses none")
	f.StringVar(&o.estimates, "estimates", "none", "users' estimates of run times: none (only those of the trace), exact, users (too long and round), or wrong:F (off by a factor of up to F either way)")
	f.Float64Var(&o.progress, "progress", 0, "share of the jobs that report their progress (pal_progress), from 0 to 1")
	f.Float64Var(&o.drift, "progress-wrong", 1, "with -progress: how wrong reports are: the speed that a job reports at its end is off by up to this factor either way; 1: all are right")
	f.DurationVar(&o.rendezvous, "rendezvous", 0, "for policies nomad and nomad-spread: the time, at least 10s, after which an incomplete gang gives up and starts again; 0: never")
	f.BoolVar(&o.limit, "limit", true, "also run policy clairvoyant, and compare the policy with it")
	o.begin = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)
	f.Func("begin", "when the trace begins, as `TIME` such as 2024-01-01T00:00:00Z (the default, a Monday): for the windows of -config", func(s string) (err error) {
		o.begin, err = time.Parse(time.RFC3339, s)
		return err
	})
}

const usage = `Usage: nomad-pal simulate [options]

Plays a workload under a policy and reports what would happen to the jobs.
The defaults are those of "nomad-pal agent"; -config reads its configuration.

`

// mostDrift is the maximum of -progress-wrong. With more, what jobs report could exceed a float64.
const mostDrift = 100

// leastMTBF and leastRendezvous are the minimums of -mtbf and -rendezvous. With less, GPUs would
// fail or gangs would give up all the time, and the simulation might never end.
const (
	leastMTBF       = time.Hour
	leastRendezvous = 10 * time.Second
)

// describePolicies lists the baselines.
func describePolicies(w io.Writer) {
	fmt.Fprint(w, "Policies that the agent does not have (-policy NAME). They cannot be combined with options of the queue:\n\n")
	for _, p := range sim.Baselines() {
		fmt.Fprintf(w, "  %s\n    \t%s\n", p.Name, p.About)
	}
	fmt.Fprintln(w)
}

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
	case !(o.elastic.Share >= 0 && o.elastic.Share <= 1):
		return fmt.Errorf("-elastic %v is not between 0 and 1", o.elastic.Share)
	case !(o.elastic.Efficiency >= 0.5 && o.elastic.Efficiency <= 1):
		return fmt.Errorf("-elastic-efficiency %v is not between 0.5 and 1", o.elastic.Efficiency)
	case !(o.progress >= 0 && o.progress <= 1):
		return fmt.Errorf("-progress %v is not between 0 and 1", o.progress)
	case !(o.drift >= 1 && o.drift <= mostDrift):
		return fmt.Errorf("-progress-wrong %v is not between 1 and %v", o.drift, mostDrift)
	}
	return cmp.Or(o.checkTasks(), o.checkModels(), o.checkSharing())
}

func (o *options) checkTasks() error {
	switch {
	case o.taskGPUs < 0:
		return fmt.Errorf("-task-gpus %d must not be negative", o.taskGPUs)
	case o.taskGPUs > o.gpusPerNode && !o.ofNomad():
		return fmt.Errorf("-task-gpus %d is more than the %d GPUs of a node", o.taskGPUs, o.gpusPerNode)
	}
	return nil
}
