// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// Policy is a named scheduler, for comparison with the product's queue.
type Policy struct {
	Name string
	// About describes the policy in one sentence.
	About string
	// Queue has the rules of a policy with a queue; Preempts reports whether the policy may stop
	// any gang.
	Queue    queue.Options
	Preempts bool
	// Estimate makes the queue's estimates of run times from a seed; nil means the estimates of
	// Config.
	Estimate func(seed uint64) Estimate
	// Nomad is set for plain Nomad, whose jobs, cluster and seed come from Config.
	Nomad *Nomad
	// Engine runs a policy that has neither our queue nor Nomad's scheduler.
	Engine func(Config) (Outcome, error)
}

// Estimate returns the queue's estimate of a job's work; 0 means no estimate.
type Estimate = func(i int, j trace.Job) time.Duration

// Unbounded is a limit on waiting that no simulation reaches.
const Unbounded = 100 * 365 * 24 * time.Hour

// Baselines returns the policies for comparison with the product's queue.
func Baselines() []Policy {
	return []Policy{
		{Name: "nomad", Nomad: &Nomad{}, About: "plain Nomad: every allocation as soon as it fits, half-placed gangs hold their GPUs until they give up"},
		{Name: "nomad-spread", Nomad: &Nomad{Spread: true}, About: "plain Nomad with its spread algorithm"},
		{Name: "fifo", Queue: packed(queue.BackfillNone), About: "strictly in order of submission, packed"},
		{Name: "easy", Queue: packed(queue.BackfillReserved), Estimate: func(uint64) Estimate { return Exact },
			About: "FIFO with EASY backfilling, packed; run times are known exactly"},
		{Name: "easy-users", Queue: packed(queue.BackfillReserved), Estimate: Users,
			About: "like Slurm: FIFO with EASY backfilling, packed; uses users' estimates: those of the trace (such as sacct's time limits) or, without any, invented ones (up to five times too long, rounded up)"},
	}
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

func packed(backfill queue.Backfill) queue.Options {
	return queue.Options{Order: queue.FIFO, Placement: pal.Policy{Name: pal.Packed}, Backfill: backfill, MaxWait: Unbounded}
}

// Run simulates the jobs of the configuration on its cluster under the policy. Other fields of the
// configuration apply if the policy's engine uses them.
func (p Policy) Run(c Config) (Outcome, error) {
	switch {
	case p.Nomad != nil:
		return Nomad{Jobs: c.Jobs, Cluster: c.Cluster, Spread: p.Nomad.Spread, RendezvousS: p.Nomad.RendezvousS, Seed: c.Seed}.Run()
	case p.Engine != nil:
		return p.Engine(c)
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

// usersFactor is the largest factor by which users' estimates are too long, before rounding.
const usersFactor = 5

// Users returns the estimates of users whose jobs are killed at the end of the requested time. Jobs
// without an estimate in the trace get an estimate: the work times a random number from 1 to 5 (the
// f-model of Mu'alem and Feitelson), rounded up as by [asWritten].
func Users(seed uint64) Estimate {
	return func(i int, j trace.Job) time.Duration {
		if j.EstimateS > 0 {
			return seconds(j.EstimateS)
		}
		u := rand.New(rand.NewPCG(seed, uint64(i))).Float64()
		return asWritten(seconds(j.WorkS() * (1 + (usersFactor-1)*u)))
	}
}

// asWritten rounds a duration up to the next value that people write, such as 30 minutes or 1 day.
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
