// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/pyrandom"
	"github.com/nomad-pal/nomad-pal/bench/sim"
	"github.com/nomad-pal/nomad-pal/bench/trace"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// Run is the command: it returns the exit code.
func Run(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = o.run(stdout, stderr)
	}
	if err != nil {
		fmt.Fprintf(stderr, "simulate: %v\n", err)
		return 1
	}
	return 0
}

func (o *options) run(stdout, stderr io.Writer) error {
	t, nodes, err := o.inputs()
	if err != nil {
		return err
	}
	rep, err := o.simulate(t, nodes, stderr)
	if err != nil {
		return err
	}
	if o.csv != "" {
		if err := writeFile(o.csv, rep.writeCSV); err != nil {
			return err
		}
	}
	if o.html != "" {
		if err := writeFile(o.html, rep.writeHTML); err != nil {
			return err
		}
	}
	if o.json {
		return rep.writeJSON(stdout)
	}
	return rep.writeTable(stdout)
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := write(f); err != nil {
		f.Close()
		return fmt.Errorf("write report %q: %w", path, err)
	}
	return f.Close()
}

// inputs are the jobs and, outside the faithful mode, the cluster.
func (o *options) inputs() (t trace.Trace, nodes []pal.Node, err error) {
	switch {
	case o.fromNomad:
		t, nodes, err = o.readNomad()
	case o.trace != "":
		t, err = trace.ReadFile(o.trace)
	case o.generate == "sia":
		t = trace.SiaPhilly(o.seed, trace.Shape{Jobs: o.jobs, MaxGPUs: min(48, o.nodes*o.gpusPerNode)})
	case o.generate == "heavy":
		t = trace.HeavyTail(o.seed, o.jobs, o.nodes*o.gpusPerNode, 0.8)
	default:
		err = fmt.Errorf("-generate %q is unknown (one of sia, heavy)", o.generate)
	}
	if err != nil {
		return t, nil, err
	}
	if !o.fromNomad {
		if err := t.Fit(o.nodes * o.gpusPerNode); err != nil {
			return t, nil, err
		}
	}
	if len(t.Jobs) == 0 {
		return t, nil, fmt.Errorf("trace %q holds no job", t.Name)
	}
	for i := range t.Jobs {
		t.Jobs[i].SubmitS /= o.load
	}
	if o.faithful || o.fromNomad {
		return t, nodes, nil
	}
	p, err := o.population()
	if err != nil {
		return t, nil, err
	}
	nodes, err = p.PalNodes()
	return t, nodes, err
}

func (o *options) simulate(t trace.Trace, nodes []pal.Node, stderr io.Writer) (*report, error) {
	rep := newReport(o, t)
	switch {
	case o.faithful:
		return rep, o.runFaithful(t, rep)
	case o.policy == "nomad" || o.policy == "nomad-spread":
		return rep, o.runNomad(t, nodes, rep)
	}
	return rep, o.runHonest(t, nodes, rep, stderr)
}

// tracked is the range of jobs that -track follows, the whole trace if it is
// not given.
func (o *options) tracked(n int) (from, to int, err error) {
	if o.track == "" {
		return 0, n - 1, nil
	}
	if _, err := fmt.Sscanf(o.track, "%d-%d", &from, &to); err != nil || from < 0 || to < from || to >= n {
		return 0, 0, fmt.Errorf("-track %q is not FROM-TO within 0-%d", o.track, n-1)
	}
	return from, to, nil
}

func (o *options) runFaithful(t trace.Trace, rep *report) error {
	from, to, err := o.tracked(len(t.Jobs))
	if err != nil {
		return err
	}
	p, scores, err := o.artifactPopulation()
	if err != nil {
		return err
	}
	c, err := p.Cluster(o.locality.Locality)
	if err != nil {
		return err
	}
	arrivals := pyrandom.New(1)
	if o.order != "fifo" && o.order != "las" && o.order != "srtf" {
		return o.runRounds(t, c, arrivals, rep)
	}
	f := sim.Faithful{Jobs: t.Jobs, From: from, To: to, Cluster: c, Policy: o.policy, Order: o.order,
		RoundS: 360, LoadPerH: artifactLoad, Fillers: true, Scores: scores, Arrivals: arrivals}
	rep.watchRounds(&f, c)
	res, err := f.Run()
	if err != nil {
		return err
	}
	rep.fill(sim.Outcome{Jobs: res.Jobs, Utilisation: res.Utilisation}, c)
	return nil
}

// artifactLoad is the arrival rate of fillers, jobs an hour.
const artifactLoad = 2

// runRounds runs an order of ours in the artifact's world: its rounds, its
// GPUs, its fillers.
func (o *options) runRounds(t trace.Trace, c *pal.Cluster, arrivals *pyrandom.Rand, rep *report) error {
	cfg, err := o.config(t, c)
	if err != nil {
		return err
	}
	n, at := 0, t.Jobs[len(t.Jobs)-1].SubmitS
	cfg.RoundS = 360
	cfg.More = func() trace.Job {
		j := t.Jobs[n%len(t.Jobs)]
		at += math.Ceil(-math.Log(1-arrivals.Float64()) / artifactLoad * 3600)
		j.ID, j.SubmitS = fmt.Sprintf("%s+%d", j.ID, 1+n/len(t.Jobs)), at
		n++
		return j
	}
	rep.watch(&cfg, c)
	out, err := cfg.Run()
	if err != nil {
		return err
	}
	rep.fill(out, c)
	return nil
}

func (o *options) runNomad(t trace.Trace, nodes []pal.Node, rep *report) error {
	c, err := pal.NewCluster(nodes, o.locality.Locality)
	if err != nil {
		return err
	}
	out, err := sim.Nomad{Jobs: t.Jobs, Cluster: c, Spread: o.policy == "nomad-spread",
		RendezvousS: o.rendezvous.Seconds(), Seed: o.seed}.Run()
	if err != nil {
		return err
	}
	rep.fill(out, c)
	return nil
}

func (o *options) runHonest(t trace.Trace, nodes []pal.Node, rep *report, stderr io.Writer) error {
	c, err := pal.NewCluster(nodes, o.locality.Locality)
	if err != nil {
		return err
	}
	cfg, err := o.config(t, c)
	if err != nil {
		return err
	}
	if !o.quiet {
		cfg.OnProgress = func(now time.Duration, finished, total int) {
			fmt.Fprintf(stderr, "\rsimulated %s, %d of %d jobs finished", now.Round(time.Second), finished, total)
			if finished == total {
				fmt.Fprintln(stderr)
			}
		}
	}
	rep.watch(&cfg, c)
	out, err := cfg.Run()
	if err != nil {
		return err
	}
	rep.fill(out, c)
	return nil
}

// config is the honest mode's run.
func (o *options) config(t trace.Trace, c *pal.Cluster) (sim.Config, error) {
	cfg := sim.Config{Jobs: t.Jobs, Cluster: c, RestartS: o.restart.Seconds(), CheckpointS: o.checkpoint.Seconds(), Preemptible: o.preempt, Seed: o.seed,
		Failures: sim.Failures{MTBFH: o.mtbf.Hours(), RepairH: o.repair.Hours()}}
	cfg.Queue = o.queue()
	place := o.policy
	switch o.policy {
	case "tiresias": // least attained service in levels, preemptive, packed
		place = "packed"
		cfg.Queue.Order, cfg.Queue.Preempt, cfg.Preemptible = queue.LAS, true, true
	case "gandiva": // time slices in turns, packed, moved together when there is room
		place = "packed"
		cfg.Queue.Order, cfg.Queue.Preempt, cfg.Queue.Migrate, cfg.Preemptible = queue.RoundRobin, true, true, true
	case "packed-sticky":
		place = "packed"
	case "random-sticky":
		place = "random"
	case "packed-nonsticky", "random-nonsticky":
		return cfg, fmt.Errorf("-policy %s moves every gang every round for nothing: only -faithful does", o.policy)
	}
	name, err := pal.ParsePolicy(place)
	if err != nil {
		return cfg, err
	}
	cfg.Queue.Placement = pal.Policy{Name: name}
	if name == pal.Random {
		rng := rand.New(rand.NewPCG(o.seed, 0x5a3))
		cfg.Queue.Placement.Sample = func(n, k int) []int { return rng.Perm(n)[:k] }
	}
	cfg.Estimate, err = o.estimate()
	return cfg, err
}

// queue is the queue's policy: the default one where the order is adaptive,
// else exactly what the flags say.
func (o *options) queue() queue.Options {
	q := queue.Options{Order: queue.Order(o.order), Passing: o.passing, Migrate: o.migrate, Near: o.near, Avoid: o.avoid}
	if q.Order == queue.Adaptive {
		d := queue.Default(o.preempt)
		for name, set := range map[string]func(){
			"passing": func() { d.Passing = o.passing }, "migrate": func() { d.Migrate = o.migrate },
			"near": func() { d.Near = o.near }, "avoid": func() { d.Avoid = o.avoid },
		} {
			if o.set[name] {
				set()
			}
		}
		q = d
	}
	q.Backfill, q.Preempt, q.Pass = o.backfill, o.preempt, o.pass
	return q
}

// estimate is what the queue is told of run times.
func (o *options) estimate() (func(int, trace.Job) time.Duration, error) {
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	switch {
	case o.estimates == "none":
		return func(_ int, j trace.Job) time.Duration { return seconds(j.EstimateS) }, nil
	case o.estimates == "exact":
		return func(_ int, j trace.Job) time.Duration { return seconds(j.WorkS()) }, nil
	}
	f := 0.0
	if _, err := fmt.Sscanf(strings.TrimPrefix(o.estimates, "wrong:"), "%g", &f); err != nil || !(f >= 1) {
		return nil, fmt.Errorf("-estimates %q is not none, exact or wrong:F with F of at least 1", o.estimates)
	}
	return func(i int, j trace.Job) time.Duration {
		u := rand.New(rand.NewPCG(o.seed, uint64(i))).Float64()*2 - 1
		return seconds(j.WorkS() * math.Pow(f, u))
	}, nil
}
