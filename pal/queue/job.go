// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Job is a gang with the properties that the Queue needs.
type Job struct {
	ID   string
	Name string // key of its run history; "": none
	// Tenant is the namespace that pays for it in quotas and fair shares.
	Tenant string
	// User owns the job, for limits of users; "": nobody.
	User     string
	Gang     pal.Gang
	Priority int // higher goes first under [Priority]
	// Submitted is the time of submission, since the caller's epoch.
	Submitted time.Duration
	// Estimate is the user's estimate of its run time at cost 1; 0: the user gave none.
	Estimate time.Duration
	// Limit is the run time after which Nomad ends a run (max_run_duration); 0: no limit. It caps
	// the expected run time, and is the expected run time if nothing else is known.
	Limit time.Duration
	// Attained is how long it ran before it was submitted or restored here. Waited is how long it
	// waited before and between those runs.
	Attained, Waited time.Duration
	// Booked is set for a restored gang: the time up to which its usage was already counted; 0:
	// never.
	Booked time.Duration
	// Done is the work that it did during Attained, in time at cost 1; 0: the same as Attained.
	Done time.Duration
	// Preemptible gangs may be stopped and started again later, Migratable ones may be moved.
	// RestartCost is the run time lost each time.
	Preemptible, Migratable bool
	RestartCost             time.Duration
	// Checkpoint is the time between checkpoints; the first interval begins RestartCost after the
	// gang's start. A stop loses the work since the last checkpoint. 0: nothing is lost, or the
	// interval is unknown.
	Checkpoint time.Duration
	// Deadline is the time by which it should have ended, since the caller's epoch; 0: none.
	Deadline time.Duration
	// Array groups jobs. At most ArrayParallel of a group run at a time; 0: no bound.
	Array         string
	ArrayParallel int
	// Least makes the gang elastic: it runs with any number of members from Least to all. Its Gang
	// has a single member set. 0: the gang is not elastic. Estimate and Done are for all members.
	Least int
	// Efficiency is the part of a linear speed-up that each doubling of the members keeps, from 0.5
	// (twice the members are no faster) to 1; 0: 1.
	Efficiency float64
	// LocalityWait is how long it waits for GPUs closer together; 0: see [Options.LocalityWait].
	LocalityWait time.Duration
	// Anywhere gangs do not wait for closer GPUs.
	Anywhere bool
	// Endless gangs are services: they run until somebody stops them. So no gang waits for their
	// GPUs, unless they may be stopped for others.
	Endless bool
}

// Order sorts the queue.
type Order string

// The orders. All break ties by the time of submission.
const (
	FIFO     Order = "fifo"     // by submission
	Priority Order = "priority" // by Nomad's job priority, then age
	LAS      Order = "las"      // least attained GPU time first, in levels (Tiresias)
	SRTF     Order = "srtf"     // shortest expected remaining time first
	// Adaptive sorts by least expected remaining GPU time, from estimates, the history of names,
	// the gangs' reports and limits. Without these, a gang is expected to run as long again as it
	// has run so far, but at least for DefaultRuntime.
	Adaptive Order = "adaptive"
	// RoundRobin gives each gang a time slice of one quantum in turn (Gandiva).
	RoundRobin Order = "round-robin"
)

// Orders returns all orders.
func Orders() []Order { return []Order{FIFO, Priority, LAS, SRTF, Adaptive, RoundRobin} }

// ParseOrder parses the name of an order.
func ParseOrder(s string) (Order, error) {
	return pal.ParseName("queue order", s, Orders()...)
}

// Options are the queue's policy.
type Options struct {
	Order     Order
	Placement pal.Policy
	// Backfill says which gangs may pass a head that does not fit; "":
	// [BackfillNone].
	Backfill Backfill
	// MaxWait is the total wait after which a gang is overdue if it has neither an estimate nor a
	// limit; 0: [DefaultMaxWait].
	MaxWait time.Duration
	// Patience says when other gangs are overdue: after waiting for this many times the estimate or
	// the limit, whichever is shorter, but at least [leastPatience]; 0: after MaxWait.
	Patience float64
	// FreeStops is the number of stops and moves without a penalty. Each further one doubles the
	// time for which the gang then runs undisturbed. 0: that time never grows.
	FreeStops int
	// Credit discounts preemptible gangs under Adaptive: only this part of their GPU time counts
	// for their place in the queue. Without the discount, preemptible gangs would gain less than
	// the gangs that they make room for. The discount also protects them from gangs that are not
	// preemptible and look for victims. It does not protect them from gangs shorter than
	// DefaultRuntime, because these would then wait longer than they run. 0: no discount.
	Credit float64
	// OverdueShare is the long-run part of the cluster's GPU time that serves overdue gangs in
	// order of submission; 0: [DefaultOverdueShare].
	OverdueShare float64
	// Preempt stops preemptible gangs of worse levels for gangs of better ones.
	Preempt bool
	// Migrate moves migratable gangs if that saves more than it costs.
	Migrate bool
	// LocalityWait lets a gang wait for GPUs closer together if the free ones would make it much
	// slower. It waits at most as long as the wait is expected to save, or a quarter of that if it
	// may be moved later. LocalityWait also lets gangs move closer together while others wait.
	LocalityWait bool
	// OutlierThreshold keeps gangs off GPUs whose PM score for their class is above it, unless they
	// could never run on the others. With LocalityWait, a gang of one GPU may use such a GPU after
	// it has waited for a better one. 0: no GPU is avoided.
	OutlierThreshold float64
	// Quantum is the attained GPU time of the first level of LAS and the time slice of RoundRobin;
	// 0: [DefaultQuantum].
	Quantum time.Duration
	// DefaultRuntime is the expected run time of a new gang about which nothing is known; 0:
	// [DefaultRuntime]. It is the scale of the levels of SRTF and Adaptive.
	DefaultRuntime time.Duration
	// Tenants gives tenants quotas and weights, by path; those not listed have no
	// quota and weight 1.
	Tenants map[string]Tenant
	// FairShare lets the tenant go first that has used the least GPU time for its weight, before
	// Order counts.
	FairShare bool
	// HalfLife is the time after which used GPU time counts half; 0: only current use counts.
	HalfLife time.Duration
	// Usage selects how GPU hours are weighted; "": [UsageGPUTime].
	Usage UsageBy
	// JobPriority puts gangs of a higher [Job.Priority] first, and lets them stop preemptible gangs
	// of a lower one. It counts before Deadlines and Order; with FairShare, only among gangs of one
	// tenant. The order [Priority] does the same, and breaks ties by the time of submission.
	JobPriority bool
	// Deadlines lets gangs whose deadline is in danger go first, among those of one priority.
	Deadlines bool
	// Starts is the number of actions after which a pass ends; 0: no limit. The next pass continues
	// with the remaining gangs.
	Starts int
	// Exclusive promises that GPUs of the cluster come free only through calls to this Queue. Then
	// a gang that did not fit is not tried again before such a call. The simulator's clusters are
	// exclusive, a daemon's never.
	Exclusive bool
}

// ByPriority reports whether gangs of a higher priority go first.
func (o Options) ByPriority() bool { return o.JobPriority || o.Order == Priority }

// Backfill selects which gangs may start while the head of the queue waits for GPUs. The head is
// the first gang that does not fit.
type Backfill string

// The kinds of backfill.
const (
	BackfillNone     Backfill = "none"     // no gang: strict order
	BackfillReserved Backfill = "reserved" // gangs that do not delay the head's expected start (EASY)
	// BackfillBestEffort lets all gangs start that fit, however long the head then waits. It needs
	// no run-time estimates (Kueue's BestEffortFIFO).
	BackfillBestEffort Backfill = "best-effort"
)

// ParseBackfill parses a kind of backfill.
func ParseBackfill(s string) (Backfill, error) {
	return pal.ParseName("backfill", s, BackfillNone, BackfillReserved, BackfillBestEffort)
}

// Defaults of [Options].
const (
	DefaultMaxWait      = 36 * time.Hour
	DefaultOverdueShare = 0.05
	// DefaultPatience: a gang with an estimate of two hours has its turn after waiting four. See
	// docs/results/sim-users.md.
	DefaultPatience = 2
	// DefaultFreeStops: no gang is stopped more than 40 times, as the last run would be longer than
	// 100 years.
	DefaultFreeStops = 12
	DefaultQuantum   = time.Hour
	// DefaultCredit gives preemptible gangs the same gain as the others. See
	// docs/results/sim-users.md.
	DefaultCredit = 0.4
	// DefaultRuntime only matters if other gangs are known to run shorter or longer.
	DefaultRuntime = 10 * time.Minute
	// DefaultOutlierThreshold is the PM score above which a GPU is an outlier.
	DefaultOutlierThreshold = 1.5
	// DefaultRoomForWide lets gangs leave room for wide ones among GPUs that differ by at most 10
	// %, as GPUs without outliers do. See [pal.Policy].
	DefaultRoomForWide = 0.1
)

// Default returns the default policy of the agent and of the simulator's tables. Each job's own
// settings decide whether it may be stopped or moved.
func Default() Options {
	place := Placement(pal.PAL)
	place.RefuseBad = true
	return Options{Order: Adaptive, Placement: place, Backfill: BackfillReserved,
		Preempt: true, Migrate: true, LocalityWait: true, OutlierThreshold: DefaultOutlierThreshold, JobPriority: true, Deadlines: true,
		MaxWait: DefaultMaxWait, Patience: DefaultPatience, FreeStops: DefaultFreeStops, Credit: DefaultCredit, OverdueShare: DefaultOverdueShare, Quantum: DefaultQuantum, DefaultRuntime: DefaultRuntime, HalfLife: DefaultHalfLife, Usage: UsageGPUTime}
}

// Placement returns the placement policy of that name with the agent's defaults: under PAL,
// [DefaultRoomForWide].
func Placement(name pal.PolicyName) pal.Policy {
	p := pal.Policy{Name: name}
	if name == pal.PAL {
		p.RoomForWide = DefaultRoomForWide
	}
	return p
}

func (o Options) withDefaults() (Options, error) {
	if _, err := ParseOrder(string(o.Order)); err != nil {
		return o, err
	}
	o.Backfill = cmp.Or(o.Backfill, BackfillNone)
	if _, err := ParseBackfill(string(o.Backfill)); err != nil {
		return o, fmt.Errorf("queue: %w", err)
	}
	if _, err := pal.ParsePolicy(string(o.Placement.Name)); err != nil {
		return o, err
	}
	o.Usage = cmp.Or(o.Usage, UsageGPUTime)
	if _, err := ParseUsageBy(string(o.Usage)); err != nil {
		return o, fmt.Errorf("queue: %w", err)
	}
	switch {
	case o.MaxWait < 0 || o.Quantum < 0 || o.DefaultRuntime < 0:
		return o, fmt.Errorf("queue: max_wait %v, quantum %v and default_runtime %v must not be negative", o.MaxWait, o.Quantum, o.DefaultRuntime)
	case o.HalfLife < 0:
		return o, fmt.Errorf("queue: usage_half_life %v must not be negative", o.HalfLife)
	case o.FreeStops < 0:
		return o, fmt.Errorf("queue: free stops %d must not be negative", o.FreeStops)
	case !(o.Patience >= 0):
		return o, fmt.Errorf("queue: patience %v must not be negative", o.Patience)
	case !(o.Credit >= 0 && o.Credit <= 1):
		return o, fmt.Errorf("queue: credit %v is not between 0 and 1", o.Credit)
	case !(o.OverdueShare >= 0 && o.OverdueShare <= 1):
		return o, fmt.Errorf("queue: overdue_share %v is not between 0 and 1", o.OverdueShare)
	}
	if err := o.checkTenants(); err != nil {
		return o, err
	}
	o.MaxWait, o.OverdueShare = cmp.Or(o.MaxWait, DefaultMaxWait), cmp.Or(o.OverdueShare, DefaultOverdueShare)
	o.Quantum, o.DefaultRuntime = cmp.Or(o.Quantum, DefaultQuantum), cmp.Or(o.DefaultRuntime, DefaultRuntime)
	return o, nil
}

// Kind says what an action does.
type Kind uint8

// The kinds of action.
const (
	Start   Kind = iota + 1 // start a waiting gang
	Preempt                 // stop a running gang for another one
	Migrate                 // stop a running gang and start it elsewhere
	Resize                  // let a running elastic gang continue with fewer or more members
)

func (k Kind) String() string {
	return [...]string{"", "start", "preempt", "migrate", "resize"}[k]
}

// Action is one thing to do.
type Action struct {
	Kind Kind
	Job  string
	For  string // the gang that needs the GPUs; set for Preempt, and for Resize to fewer members
	// Found has the GPUs to start on, for Start and Migrate. For Resize it holds all members
	// afterwards; those that stay come first.
	pal.Found
}

// String returns the action on one line, for logs and tests.
func (a Action) String() string {
	if a.Kind == Preempt {
		return fmt.Sprintf("%s %s for %s", a.Kind, a.Job, a.For)
	}
	return fmt.Sprintf("%s %s on %v", a.Kind, a.Job, a.Placement)
}
