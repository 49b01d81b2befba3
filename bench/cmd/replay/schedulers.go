// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/replay"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim"
)

// scheduler is one line of the comparison.
type scheduler struct {
	name      string
	algorithm string
	rules     *replay.Rules // the placer's configuration; nil: plain Nomad or Slurm
	giveUp    time.Duration // how long a rank waits for its gang, uncompressed
	preempt   bool          // jobs may be stopped
	alone     bool          // a run needs the whole machine
	asked     bool          // runs only if -modes names it
	choose    choice        // in lines about GPU models: the way in which a job's GPU model is chosen
	// limit returns, for a seed, the run time estimates to give Slurm as time limits; nil for other
	// schedulers.
	limit func(seed uint64) sim.Estimate
}

// penalty is PAL's locality penalty across nodes.
const penalty = 1.7

// restart is the time to load a checkpoint, uncompressed.
const restart = 60 * time.Second

// iteration is how long an iteration takes on median GPUs of one node. Progress is saved after each
// iteration.
const iteration = 250 * time.Millisecond

// restartCost is the queue's estimate of the cost of a restart: the time to load a checkpoint, to
// start, to stop, and to repeat the work since the last iteration.
func restartCost(compress float64) time.Duration {
	return time.Duration(float64(restart)/compress) + usualStart + usualStop + iteration/2
}

// timing has typical durations on a cluster that is not busy.
func (o options) timing() sim.Config {
	return sim.Config{RestartS: o.compressed(restart).Seconds(), RestartCostS: restartCost(o.compress).Seconds(), CheckpointS: iteration.Seconds(),
		StartS: usualStart.Seconds, EndS: usualEnd.Seconds(), StopS: usualStop.Seconds()}
}

// never is the rendezvous timeout of gangs that wait without limit.
const never = 1000 * time.Hour

// schedulers returns the schedulers to compare. The placer starts only whole gangs, so its ranks
// use the longer of the two timeouts of plain Nomad's ranks.
func (o options) schedulers() []scheduler {
	const hurried, patient = 10 * time.Minute, 30 * time.Minute
	rules := func(placement pal.PolicyName, order queue.Order) *replay.Rules {
		return &replay.Rules{Penalty: penalty, Placement: placement, Order: order, MaxWait: o.maxWait, Compress: o.compress,
			Restart: restartCost(o.compress)}
	}
	// strict gives overdue gangs priority on all GPUs, which no configuration key allows.
	strict := rules("", "")
	strict.OverdueShare = 1
	return []scheduler{
		{name: "nomad-binpack", algorithm: "binpack", giveUp: never},
		{name: "nomad-binpack-retry10m", algorithm: "binpack", giveUp: hurried, alone: true},
		{name: "nomad-binpack-retry30m", algorithm: "binpack", giveUp: patient},
		{name: "nomad-spread-retry30m", algorithm: "spread", giveUp: patient},
		{name: "slurm-backfill", giveUp: never, limit: func(uint64) sim.Estimate { return sim.Exact }},
		{name: "slurm-backfill-guesses", giveUp: never, limit: sim.Users},
		{name: "pal-packed-fifo", algorithm: "binpack", giveUp: patient, rules: rules(pal.Packed, queue.FIFO)},
		{name: "pal-pal-fifo", algorithm: "binpack", giveUp: patient, rules: rules(pal.PAL, queue.FIFO)},
		{name: "pal-packed", algorithm: "binpack", giveUp: patient, rules: rules(pal.Packed, "")},
		{name: "pal-overdue-first", algorithm: "binpack", giveUp: patient, rules: strict, asked: true},
		{name: "pal-overdue-first", algorithm: "binpack", giveUp: patient, rules: strict, preempt: true, asked: true},
		{name: "pal-default", algorithm: "binpack", giveUp: patient, rules: rules("", "")},
		{name: "pal-default", algorithm: "binpack", giveUp: patient, rules: rules("", ""), preempt: true},
		{name: "nomad-model-any", algorithm: "binpack", giveUp: patient, choose: anyModel, asked: true},
		{name: "nomad-model-fastest", algorithm: "binpack", giveUp: patient, choose: fastestModel, asked: true},
		{name: "pal-model-any", algorithm: "binpack", giveUp: patient, rules: rules("", ""), choose: anyModel, asked: true},
		{name: "pal-model-fastest", algorithm: "binpack", giveUp: patient, rules: rules("", ""), choose: fastestModel, asked: true},
		{name: "pal-model-speed", algorithm: "binpack", giveUp: patient, rules: rules("", ""), choose: saidSpeeds, asked: true},
	}
}

// place returns a scheduler's index in the comparison.
func place(name string, preempt bool) int {
	return slices.IndexFunc(options{compress: 1}.schedulers(), func(s scheduler) bool { return s.name == name && s.preempt == preempt })
}

// chosen returns the schedulers that -modes names; without -modes, all except those that must be
// named.
func (o options) chosen() ([]scheduler, error) {
	all := o.schedulers()
	if o.modes == "" {
		return slices.DeleteFunc(all, func(s scheduler) bool { return s.asked }), nil
	}
	var out []scheduler
	for _, name := range strings.Split(o.modes, ",") {
		n := len(out)
		for _, s := range all {
			if s.name == name {
				out = append(out, s)
			}
		}
		if len(out) == n {
			return nil, fmt.Errorf("-modes: no scheduler %q", name)
		}
	}
	return out, nil
}
