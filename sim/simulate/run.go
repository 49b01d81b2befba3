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
	"strconv"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/sim"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// PastRuns asks the agent for the runs in its history since a time. The time is a text such as 30d
// or 2026-11-01; "" means no limit.
type PastRuns func(since string) ([]palapi.Run, error)

// Command is the command simulate. Programs differ in its fields.
type Command struct {
	Past PastRuns // for -from-history
	// ReadTrace reads the file of -trace; nil means [trace.ReadFile].
	ReadTrace func(path string) (trace.Trace, error)
	// Policies are further values of -policy, in addition to [sim.Baselines].
	Policies []sim.Policy
}

// Run runs the command and returns its exit code.
func (c Command) Run(args []string, stdout, stderr io.Writer) int {
	if c.ReadTrace == nil {
		c.ReadTrace = trace.ReadFile
	}
	o, err := c.parse(args, stderr)
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
	rep, err := o.simulate(t, nodes)
	if err != nil {
		return err
	}
	if o.html != "" {
		if err := rep.writeHTML(o.html); err != nil {
			return fmt.Errorf("writing the report %q: %w", o.html, err)
		}
	}
	if o.json {
		for _, warning := range rep.Warnings {
			fmt.Fprintf(stderr, "warning: %s\n", warning)
		}
		return rep.writeJSON(stdout)
	}
	return rep.writeTable(stdout)
}

// inputs returns the jobs and the nodes of the cluster.
func (o *options) inputs() (t trace.Trace, nodes []pal.Node, err error) {
	switch {
	case o.fromHistory:
		t, nodes, err = o.readNomad()
	case o.trace != "":
		t, err = o.ReadTrace(o.trace)
	case o.generate == "sia":
		t = trace.SiaPhilly(o.seed, trace.Shape{Jobs: o.jobs, MaxGPUs: min(48, o.widest()*o.gpusPerNode)})
	case o.generate == "heavy":
		t = trace.HeavyTail(o.seed, o.jobs, o.nodes*o.gpusPerNode, 0.8)
	default:
		err = fmt.Errorf("-generate %q is neither sia nor heavy", o.generate)
	}
	if err != nil {
		return t, nil, err
	}
	if !o.fromHistory {
		t = t.NoWider(o.gpusPerNode) // splits members that are wider than a node
		t.Fit(o.widest(), o.gpusPerNode)
		if nodes, err = o.drawNodes(); err != nil {
			return t, nil, err
		}
	}
	if len(t.Jobs) > 0 {
		if t, err = o.onModels(t, nodes); err != nil {
			return t, nil, err
		}
	}
	if len(t.Jobs) == 0 {
		why := ""
		if len(t.LeftOut) > 0 {
			why = "; left out are " + leftOut(t.Skipped(), 0)
		}
		return t, nil, fmt.Errorf("trace %q has no job that can be simulated%s", t.Name, why)
	}
	return t, nodes, nil
}

// drawNodes draws the cluster.
func (o *options) drawNodes() ([]pal.Node, error) {
	if len(o.fleet) > 0 {
		return o.mixedNodes()
	}
	p, err := o.population(o.nodes, o.seed)
	if err != nil {
		return nil, err
	}
	return p.PalNodes(o.rules.Calibration.Bin)
}

func (o *options) simulate(t trace.Trace, nodes []pal.Node) (*Report, error) {
	rep := newReport(o, t)
	if err := o.play(t, nodes, rep); err != nil {
		return nil, err
	}
	if !o.asksWorth(nodes) {
		return rep, nil
	}
	var err error
	rep.Speed, err = o.worth(t, nodes)
	return rep, err
}

// play runs the policy.
func (o *options) play(t trace.Trace, nodes []pal.Node, rep *Report) error {
	c, err := pal.NewCluster(nodes, o.rules.Locality)
	if err != nil {
		return err
	}
	cfg, err := o.world(t, c)
	if err != nil {
		return err
	}
	run := cfg.Run
	if p, ok := o.baseline(); ok {
		run = func() (sim.Outcome, error) { return p.Run(cfg) }
	}
	out, err := run()
	if err != nil {
		return err
	}
	rep.fill(out, c)
	return nil
}

// world makes the run's configuration from the agent's rules and the flags.
func (o *options) world(t trace.Trace, c *pal.Cluster) (sim.Config, error) {
	cfg := sim.Config{Jobs: t.Jobs, Cluster: c, Queue: o.rules.Queue, RestartS: o.rules.RestartCost.Seconds(), CheckpointS: o.checkpoint.Seconds(),
		Preemptible: o.preempt, Migratable: o.settings["migrate"] == "true", Seed: o.seed}
	var err error
	if cfg.Estimate, err = o.estimate(); err != nil {
		return cfg, err
	}
	if _, ok := o.baseline(); ok {
		ignoreSpeeds(&cfg)
		return cfg, nil
	}
	cfg.Queue.Placement = queue.Placement(o.rules.Placement)
	if o.rules.Placement == pal.Random {
		rng := rand.New(rand.NewPCG(o.seed, 0x5a3))
		cfg.Queue.Placement.Sample = func(n, k int) []int { return rng.Perm(n)[:k] }
	}
	return cfg, nil
}

func (o *options) estimate() (sim.Estimate, error) {
	switch o.estimates {
	case "none":
		return func(_ int, j trace.Job) time.Duration { return time.Duration(j.EstimateS * float64(time.Second)) }, nil
	case "exact":
		return sim.Exact, nil
	case "users":
		return sim.Users(o.seed), nil
	}
	factor, ok := strings.CutPrefix(o.estimates, "wrong:")
	f, err := strconv.ParseFloat(factor, 64)
	if !ok || err != nil || !(f >= 1) || math.IsInf(f, 1) {
		return nil, fmt.Errorf("-estimates %q is not none, exact, users or wrong:F with F of at least 1", o.estimates)
	}
	return sim.Wrong(f, o.seed), nil
}
