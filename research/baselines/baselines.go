// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package baselines has the policies that studies compare with the product's queue: those of
// `nomad-pal simulate`, and more.
package baselines

import (
	"fmt"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim"
)

// Limit is the name of the policy to which all others are compared.
const Limit = "clairvoyant"

// More returns the policies that the product does not have.
func More() []sim.Policy {
	srtf := preemptive(queue.SRTF)
	srtf.MaxWait = sim.Unbounded
	ps := []sim.Policy{{Name: "srtf", Queue: srtf, Preempts: true, Estimate: func(uint64) sim.Estimate { return sim.Exact },
		About: "shortest remaining time first, preemptive, packed; run times are known exactly; no bound on waiting"}}
	ours := preemptive(queue.LAS)
	ours.Migrate, ours.LocalityWait, ours.OutlierThreshold = true, true, queue.DefaultOutlierThreshold
	for _, p := range []sim.Policy{
		{Name: "las", Queue: ours, About: "least attained GPU time first in levels, preemptive, packed, with our rules: waits for closer GPUs, no outliers, and moves"},
		{Name: "tiresias", Queue: preemptive(queue.LAS), About: "as Tiresias: least attained GPU time first in levels, preemptive, packed"},
	} {
		p.Preempts = true
		unbounded := p
		p.Queue.MaxWait, unbounded.Queue.MaxWait = queue.DefaultMaxWait, sim.Unbounded
		p.About += fmt.Sprintf("; a job that has waited %.0f hours goes first", queue.DefaultMaxWait.Hours())
		unbounded.Name += "-unbounded"
		unbounded.About += "; no bound on waiting"
		ps = append(ps, p, unbounded)
	}
	return append(ps, sim.Policy{Name: Limit, Engine: func(c sim.Config) (sim.Outcome, error) { return Clairvoyant{Jobs: c.Jobs, Cluster: c.Cluster}.Run() },
		About: "knows every run time, and stops, starts and moves gangs at no cost; least remaining GPU time first; slow GPUs and distance cost time, too; all other policies are compared with this one"})
}

func preemptive(order queue.Order) queue.Options {
	return queue.Options{Order: order, Placement: pal.Policy{Name: pal.Packed}, Backfill: queue.BackfillBestEffort, Preempt: true}
}

// All returns the product's policies, [More], and plain Nomad with several timeouts of half-placed
// gangs.
func All() []sim.Policy {
	nomad := func(name string, n sim.Nomad) sim.Policy { return sim.Policy{Name: name, Nomad: &n} }
	ps := []sim.Policy{
		nomad("nomad", sim.Nomad{}), nomad("nomad-10m", sim.Nomad{RendezvousS: 600}), nomad("nomad-30m", sim.Nomad{RendezvousS: 1800}),
		nomad("nomad-spread", sim.Nomad{Spread: true}), nomad("nomad-spread-30m", sim.Nomad{Spread: true, RendezvousS: 1800}),
	}
	for _, p := range sim.Baselines() {
		if p.Nomad == nil {
			ps = append(ps, p)
		}
	}
	return append(ps, More()...)
}

// Of returns the policy with this name.
func Of(name string) sim.Policy {
	all := All()
	return all[slices.IndexFunc(all, func(p sim.Policy) bool { return p.Name == name })]
}

// shortest is the number of seconds that [Stretch] counts in place of shorter times. Without this
// minimum, the stretch of a short job would say little about the queue.
const shortest = 10

// Stretch is the job completion time divided by the work at cost 1. Times below 10 s count as 10 s.
// Stretch combines the effects of waiting and slow GPUs. The literature calls it bounded slowdown.
func Stretch(j sim.JobResult) float64 { return max(j.JCT(), shortest) / max(j.WorkS, shortest) }
