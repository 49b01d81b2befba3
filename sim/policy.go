// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// Policy is a named scheduler with which the product's queue is compared.
type Policy struct {
	Name string
	// About describes the policy in one sentence.
	About string
	// Queue has the rules of a policy with a queue; Preempts reports whether the policy may stop
	// any gang.
	Queue    queue.Options
	Preempts bool
	// Estimate makes the queue's estimates of run times from a seed; nil: the estimates of Config.
	Estimate func(seed uint64) Estimate

	kind        kind
	rendezvousS float64 // time after which half-placed gangs of plain Nomad give up; 0: never
}

type kind uint8

const (
	queued kind = iota
	plainNomad
	spreadNomad
	clairvoyant
)

// Estimate returns the queue's estimate of a job's work; 0: no estimate.
type Estimate = func(i int, j trace.Job) time.Duration

// Unbounded is a limit on waiting that no simulation reaches.
const Unbounded = 100 * 365 * 24 * time.Hour

// Baselines returns the policies with which the product's queue is compared.
func Baselines() []Policy {
	exact := func(uint64) Estimate { return Exact }
	ps := []Policy{
		{Name: "nomad", kind: plainNomad, About: "plain Nomad: every allocation as soon as it fits, half-placed gangs hold their GPUs (-rendezvous says when they give up)"},
		{Name: "nomad-10m", kind: plainNomad, rendezvousS: 600, About: "plain Nomad; half-placed gangs give up after 10 minutes"},
		{Name: "nomad-30m", kind: plainNomad, rendezvousS: 1800, About: "plain Nomad; half-placed gangs give up after 30 minutes"},
		{Name: "nomad-spread", kind: spreadNomad, About: "plain Nomad with its spread algorithm (-rendezvous says when half-placed gangs give up)"},
		{Name: "nomad-spread-30m", kind: spreadNomad, rendezvousS: 1800, About: "plain Nomad with its spread algorithm; half-placed gangs give up after 30 minutes"},
		{Name: "fifo", Queue: strict(queue.FIFO), About: "strictly in order of submission, packed"},
		{Name: "easy", Queue: backfilled(queue.FIFO), Estimate: exact, About: "FIFO with EASY backfilling, packed; run times are known exactly"},
		{Name: "easy-users", Queue: backfilled(queue.FIFO), Estimate: Users, About: "FIFO with EASY backfilling, packed; run times as users guess them: up to five times too long, rounded up to 15 or 30 minutes, 1, 2, 4, 8 or 12 hours, 1, 2, 3 or 7 days, whole weeks"},
		{Name: "srtf", Queue: preemptive(queue.SRTF), Preempts: true, Estimate: exact, About: "shortest remaining time first, preemptive, packed; run times are known exactly; no bound on waiting"},
	}
	for _, p := range []Policy{
		{Name: "las", Queue: withOurRules(preemptive(queue.LAS)), Preempts: true, About: "least attained GPU time first in levels, preemptive, packed, with our rules: waits for closer GPUs, no outliers, and moves"},
		{Name: "tiresias", Queue: preemptive(queue.LAS), Preempts: true, About: "as Tiresias: least attained GPU time first in levels, preemptive, packed"},
		{Name: "gandiva", Queue: migrating(preemptive(queue.RoundRobin)), Preempts: true, About: "as Gandiva: time slices of an hour in turn, packed, moved if that pays; it does not put two jobs on one GPU"},
	} {
		unbounded := p
		p.Queue.MaxWait = queue.DefaultMaxWait
		p.About += fmt.Sprintf("; a job that has waited %.0f hours goes first", queue.DefaultMaxWait.Hours())
		unbounded.Name += "-unbounded"
		unbounded.About += "; no bound on waiting"
		ps = append(ps, p, unbounded)
	}
	return append(ps, Policy{Name: "clairvoyant", kind: clairvoyant, About: "knows every run time, and stops, starts and moves gangs at no cost; least remaining GPU time first; slow GPUs and distance cost time, too; all other policies are compared with this one"})
}

// PolicyOf returns the baseline with this name.
func PolicyOf(name string) (Policy, bool) {
	for _, p := range Baselines() {
		if p.Name == name {
			return p, true
		}
	}
	return Policy{}, false
}

func strict(order queue.Order) queue.Options {
	return queue.Options{Order: order, Placement: pal.Policy{Name: pal.Packed}, MaxWait: Unbounded}
}

func backfilled(order queue.Order) queue.Options {
	o := strict(order)
	o.Backfill = queue.BackfillReserved
	return o
}

func preemptive(order queue.Order) queue.Options {
	o := backfilled(order)
	o.Backfill, o.Preempt = queue.BackfillBestEffort, true
	return o
}

func migrating(o queue.Options) queue.Options {
	o.Migrate = true
	return o
}

// withOurRules adds the product's placement rules.
func withOurRules(o queue.Options) queue.Options {
	o = migrating(o)
	o.LocalityWait, o.OutlierThreshold = true, queue.DefaultOutlierThreshold
	return o
}

// Nomad reports whether the policy is plain Nomad.
func (p Policy) Nomad() bool { return p.kind == plainNomad || p.kind == spreadNomad }

// GivesUp returns a copy of the policy whose half-placed gangs under plain Nomad give up after this
// time; 0: never.
func (p Policy) GivesUp(after time.Duration) Policy {
	p.rendezvousS = after.Seconds()
	return p
}

// Run simulates the jobs of the configuration on its cluster under the policy. Other fields of the
// configuration apply if the policy's engine uses them.
func (p Policy) Run(c Config) (Outcome, error) {
	if p.kind != queued && c.Failures.MTBFH > 0 {
		return Outcome{}, fmt.Errorf("simulate %s: GPUs that fail are not modelled under this policy", p.Name)
	}
	switch p.kind {
	case plainNomad, spreadNomad:
		return Nomad{Jobs: c.Jobs, Cluster: c.Cluster, Spread: p.kind == spreadNomad, RendezvousS: p.rendezvousS, Seed: c.Seed}.Run()
	case clairvoyant:
		return Clairvoyant{Jobs: c.Jobs, Cluster: c.Cluster}.Run()
	}
	c.Queue, c.Preemptible = p.Queue, p.Preempts
	if p.Estimate != nil {
		c.Estimate = p.Estimate(c.Seed)
	}
	return c.Run()
}

// Exact is an Estimate that is always right: it returns the true work of the job.
func Exact(_ int, j trace.Job) time.Duration { return seconds(j.WorkS()) }

// Wrong returns estimates that are off by a random factor of up to f, too long or too short.
func Wrong(f float64, seed uint64) Estimate {
	return func(i int, j trace.Job) time.Duration {
		u := rand.New(rand.NewPCG(seed, uint64(i))).Float64()*2 - 1
		return seconds(j.WorkS() * math.Pow(f, u))
	}
}

// Reporting returns a function for [Config.Progress] with which a share of the jobs report. The
// speed that a job reports drifts. At the end of the job, it is the average speed of the run,
// multiplied or divided by a random factor of up to f.
func Reporting(share, f float64, seed uint64) func(i int, done float64) float64 {
	return func(i int, done float64) float64 {
		r := rand.New(rand.NewPCG(^seed, uint64(i)))
		if r.Float64() >= share {
			return -1
		}
		return math.Pow(done, math.Pow(f, 2*r.Float64()-1))
	}
}

// usersFactor is the largest factor by which users' estimates are too long, before rounding.
const usersFactor = 5

// Users returns the estimates of users whose jobs are killed at the end of the requested time. It
// prefers an estimate in the trace. Otherwise the estimate is the work times a random number from 1
// to 5 (the f-model of Mu'alem and Feitelson), rounded up to a time that people write.
func Users(seed uint64) Estimate {
	return func(i int, j trace.Job) time.Duration {
		if j.EstimateS > 0 {
			return seconds(j.EstimateS)
		}
		u := rand.New(rand.NewPCG(seed, uint64(i))).Float64()
		return asWritten(seconds(j.WorkS() * (1 + (usersFactor-1)*u)))
	}
}

// asWritten rounds a time up to the next time that people write, such as 30 minutes or 1 day.
func asWritten(d time.Duration) time.Duration {
	const day, week = 24 * time.Hour, 7 * 24 * time.Hour
	for _, round := range []time.Duration{15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour,
		8 * time.Hour, 12 * time.Hour, day, 2 * day, 3 * day} {
		if d <= round {
			return round
		}
	}
	return (d + week - 1) / week * week
}
