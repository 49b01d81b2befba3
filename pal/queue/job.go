// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Job is a gang with what the queue needs to know of it.
type Job struct {
	ID   string
	Name string // key of its history: how long runs of this name last; "": none
	// Tenant pays for it in quotas and fair shares (a Nomad namespace).
	Tenant   string
	Gang     pal.Gang
	Priority int // higher goes first under [Priority]
	// Submitted is when it came, since the caller's epoch.
	Submitted time.Duration
	// Estimate is how long the user says it runs at cost 1; 0: unknown.
	Estimate time.Duration
	// Attained is how long it ran before it was submitted or restored here.
	Attained time.Duration
	// Preemptible gangs may be stopped and started again later, Migratable ones
	// be moved. RestartCost is the run time lost each time.
	Preemptible, Migratable bool
	RestartCost             time.Duration
}

// Order sorts the waiting line.
type Order string

// The orders. All fall back on the time of submission.
const (
	FIFO     Order = "fifo"     // by submission
	Priority Order = "priority" // by Nomad's job priority, then age
	LAS      Order = "las"      // least attained GPU time first, in levels (Tiresias)
	SRTF     Order = "srtf"     // shortest expected remaining time first
	// Adaptive is least expected remaining GPU time first: what users estimate
	// and the history of names foretell, and where nothing is known, what a gang
	// has attained so far (the longer it ran, the longer it will).
	Adaptive Order = "adaptive"
)

// ParseOrder reads an order's name.
func ParseOrder(s string) (Order, error) {
	switch o := Order(s); o {
	case FIFO, Priority, LAS, SRTF, Adaptive:
		return o, nil
	}
	return "", fmt.Errorf("queue order %q is unknown (one of fifo, priority, las, srtf, adaptive)", s)
}

// Options are the queue's policy.
type Options struct {
	Order     Order
	Placement pal.Policy
	// Backfill lets gangs pass a head that does not fit, as the package comment
	// says; without it the order is strict.
	Backfill bool
	// Passing lets a gang behind a head that is not overdue start wherever it
	// fits, whatever it may do to the head.
	Passing bool
	// Pass is how long a gang may wait before nothing passes it any more;
	// 0: [DefaultPass].
	Pass time.Duration
	// Preempt stops preemptible gangs of worse levels for better ones.
	Preempt bool
	// Migrate moves migratable gangs where that saves more than it costs.
	Migrate bool
	// Quantum is the attained GPU time of the first level of LAS, and the least
	// run time before a gang is preempted; 0: [DefaultQuantum].
	Quantum time.Duration
	// Tenants limits and weighs tenants; those not listed have no quota and
	// weight 1.
	Tenants map[string]Tenant
	// FairShare lets the tenant with the fewest running GPUs for its weight go
	// first, before Order is asked.
	FairShare bool
	// Exclusive promises that GPUs of the cluster come free only through calls
	// to this Line, so that what did not fit is not tried again until one was
	// made. The simulator's clusters are exclusive, a daemon's never.
	Exclusive bool
}

// Tenant is what a tenant may use.
type Tenant struct {
	GPUs   int     // at most so many at a time; 0: no limit
	Weight float64 // of its fair share; 0: 1
}

// Defaults of [Options].
const (
	DefaultPass    = 12 * time.Hour
	DefaultQuantum = time.Hour
)

func (o Options) withDefaults() (Options, error) {
	if _, err := ParseOrder(string(o.Order)); err != nil {
		return o, err
	}
	if _, err := pal.ParsePolicy(string(o.Placement.Name)); err != nil {
		return o, err
	}
	if o.Pass < 0 || o.Quantum < 0 {
		return o, fmt.Errorf("queue: pass %v and quantum %v must not be negative", o.Pass, o.Quantum)
	}
	for name, t := range o.Tenants {
		if t.GPUs < 0 || !(t.Weight >= 0) {
			return o, fmt.Errorf("queue: tenant %q: quota %d and weight %v must not be negative", name, t.GPUs, t.Weight)
		}
	}
	if o.Pass == 0 {
		o.Pass = DefaultPass
	}
	if o.Quantum == 0 {
		o.Quantum = DefaultQuantum
	}
	return o, nil
}

// Kind says what an action does.
type Kind uint8

// The kinds of action.
const (
	Start   Kind = iota + 1 // start a waiting gang
	Preempt                 // stop a running gang for another one
	Migrate                 // stop a running gang and start it elsewhere
)

func (k Kind) String() string {
	return [...]string{"", "start", "preempt", "migrate"}[k]
}

// Action is one thing to do.
type Action struct {
	Kind      Kind
	Job       string
	Placement pal.Placement // where to start; of Start and Migrate
	For       string        // who needs the GPUs; of Preempt
}
