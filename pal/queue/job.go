// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Job is a gang and what the queue needs to know about it.
type Job struct {
	ID   string
	Name string // key of its run history; "": none
	// Tenant is the namespace that pays for it in quotas and fair shares.
	Tenant string
	// User owns the job, for limits of users; "": nobody.
	User     string
	Gang     pal.Gang
	Priority int // higher goes first under [Priority]
	// Submitted is the time when it was submitted, since the caller's epoch.
	Submitted time.Duration
	// Estimate is how long the user says it runs at cost 1; 0: unknown.
	Estimate time.Duration
	// Limit is after how long a run is ended, done or not (Nomad's max_run_duration); 0: never. It caps the
	// expected run time, and is the expected run time if nothing else is known.
	Limit time.Duration
	// Attained is how long it has run, Waited how long it has waited between runs, before it was
	// submitted or restored here.
	Attained, Waited time.Duration
	// Booked is for a gang that is restored: until when its usage was counted before; 0: never.
	Booked time.Duration
	// Done is how much of its work it did in Attained, in time at cost 1; 0: the same as Attained.
	Done time.Duration
	// Preemptible gangs may be stopped and started again later, Migratable ones may be moved.
	// RestartCost is the run time lost each time.
	Preemptible, Migratable bool
	RestartCost             time.Duration
	// Checkpoint is the time between checkpoints, the first interval beginning at its start. What
	// it did since the last one is lost when it is stopped; 0: nothing is lost, or nobody knows.
	Checkpoint time.Duration
	// Deadline is the time when it should have ended, since the caller's epoch; 0: none.
	Deadline time.Duration
	// Array groups jobs. At most ArrayParallel of a group run at a time; 0: no bound.
	Array         string
	ArrayParallel int
	// Least makes the gang elastic: it runs with Least to all members of Gang, which has one set of
	// them; 0: with all. Estimate and Done are for all members.
	Least int
	// Efficiency is what each doubling of the members keeps of a linear speed-up, from
	// 0.5 (twice the members are no faster) to 1; 0: 1.
	Efficiency float64
	// LocalityWait is how long it waits for GPUs closer together; 0: as [Options.LocalityWait]
	// says.
	LocalityWait time.Duration
	// Anywhere gangs do not wait for closer GPUs.
	Anywhere bool
	// Endless gangs are services: they run until somebody stops them, so nobody waits for their
	// GPUs.
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
	// Adaptive: least expected remaining GPU time first. Estimates and the history of names tell
	// it. If neither does, a gang is expected to run as long as it has run so far.
	Adaptive Order = "adaptive"
	// RoundRobin gives everybody a time slice of a quantum in turn (Gandiva).
	RoundRobin Order = "round-robin"
)

// Orders are the orders of the queue.
func Orders() []Order { return []Order{FIFO, Priority, LAS, SRTF, Adaptive, RoundRobin} }

// ParseOrder reads an order's name.
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
	// MaxWait is after which total wait a gang without an estimate is overdue; 0: [DefaultMaxWait].
	MaxWait time.Duration
	// Patience says when a gang with an estimate is overdue: after waiting this many times its
	// estimate, and [leastPatience] at least; 0: MaxWait.
	Patience float64
	// FreeStops is how often a gang may be stopped or moved at first. From then on, each stop
	// doubles the time that it may then run undisturbed; 0: no bound.
	FreeStops int
	// Credit discounts preemptible gangs under Adaptive: this part of their GPU time counts for
	// their place in the queue. Without it, preemptible gangs would gain less than the gangs that
	// they make room for. The discount also counts when a gang that is not preemptible looks for
	// victims, unless it is short (DefaultRuntime), since it would then wait longer than it runs.
	// 0: all of the GPU time counts.
	Credit float64
	// OverdueShare is the part of the cluster's GPU time with which overdue gangs are served in
	// order of submission, in the long run; 0: [DefaultOverdueShare].
	OverdueShare float64
	// Preempt stops preemptible gangs of worse levels for gangs of better ones.
	Preempt bool
	// Migrate moves migratable gangs where that saves more than it costs.
	Migrate bool
	// LocalityWait lets a gang wait for GPUs closer together if the free ones would make it much
	// slower. It waits at most as long as the wait is expected to save, or a quarter of that if it
	// may be moved later. LocalityWait also lets gangs move closer together while others wait.
	LocalityWait bool
	// OutlierThreshold keeps gangs off GPUs whose PM score for their class is above it,
	// unless they could never run on the others; 0: no GPU is avoided.
	OutlierThreshold float64
	// Quantum is the attained GPU time of the first level of LAS and the time slice of RoundRobin;
	// 0: [DefaultQuantum].
	Quantum time.Duration
	// DefaultRuntime is the expected run time of a new gang about which nothing is known; 0:
	// [DefaultRuntime]. It is the scale of Adaptive's levels.
	DefaultRuntime time.Duration
	// Tenants gives tenants quotas and weights, by path; those not listed have no
	// quota and weight 1.
	Tenants map[string]Tenant
	// FairShare lets the tenant go first that has used the least GPU time for its weight, before
	// Order counts.
	FairShare bool
	// HalfLife is the time after which used GPU time counts half; 0: only what runs now counts.
	HalfLife time.Duration
	// Usage is how GPU hours are weighed as usage; "": [UsageGPUTime].
	Usage UsageBy
	// JobPriority lets gangs of a higher [Job.Priority] go before others, and stop those of a lower
	// one that allow it. It counts before Deadlines and Order; with FairShare, among gangs of one
	// tenant. The order [Priority] does the same, and breaks ties by the time of submission.
	JobPriority bool
	// Deadlines lets gangs whose deadline is in danger go first, among those of one priority.
	Deadlines bool
	// Starts is after how many starts and stops a pass ends; 0: it tries all waiting gangs. The
	// next pass goes on with the others.
	Starts int
	// Exclusive promises that GPUs of the cluster come free only through calls to this Queue. Then
	// a gang that did not fit is not tried again before such a call. The simulator's clusters are
	// exclusive, a daemon's never.
	Exclusive bool
}

// ByPriority reports whether gangs of a higher priority go first.
func (o Options) ByPriority() bool { return o.JobPriority || o.Order == Priority }

// Backfill says which gangs may start while the head of the queue, the first one
// that does not fit, waits for GPUs.
type Backfill string

// The kinds of backfill.
const (
	BackfillNone     Backfill = "none"     // strict order: none
	BackfillReserved Backfill = "reserved" // EASY: those that do not delay the head's expected start
	// BackfillBestEffort: all that fit, however long the head then waits. It needs no estimates of
	// run times. (Kueue's BestEffortFIFO.)
	BackfillBestEffort Backfill = "best-effort"
)

// ParseBackfill reads a kind of backfill.
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

// Default is the one policy that the agent ships and the simulator's tables show. Each job's own
// settings decide whether it is stopped, moved or passed.
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
	if o.MaxWait < 0 || o.Quantum < 0 || o.DefaultRuntime < 0 {
		return o, fmt.Errorf("queue: max_wait %v, quantum %v and default_runtime %v must not be negative", o.MaxWait, o.Quantum, o.DefaultRuntime)
	}
	o.Usage = cmp.Or(o.Usage, UsageGPUTime)
	if _, err := ParseUsageBy(string(o.Usage)); err != nil {
		return o, fmt.Errorf("queue: %w", err)
	}
	if o.HalfLife < 0 {
		return o, fmt.Errorf("queue: half-life %v of usage must not be negative", o.HalfLife)
	}
	if o.FreeStops < 0 {
		return o, fmt.Errorf("queue: free stops %d must not be negative", o.FreeStops)
	}
	if !(o.Patience >= 0) {
		return o, fmt.Errorf("queue: patience %v must not be negative", o.Patience)
	}
	if !(o.Credit >= 0 && o.Credit <= 1) {
		return o, fmt.Errorf("queue: credit %v is not between 0 and 1", o.Credit)
	}
	if !(o.OverdueShare >= 0 && o.OverdueShare <= 1) {
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
	Resize                  // have a running elastic gang go on with fewer members, or more
)

func (k Kind) String() string {
	return [...]string{"", "start", "preempt", "migrate", "resize"}[k]
}

// Action is one thing to do.
type Action struct {
	Kind Kind
	Job  string
	For  string // the gang that needs the GPUs; set for Preempt, and for Resize to fewer members
	// Found has the GPUs to start on, for Start and Migrate. For Resize it holds all members afterwards;
	// those that stay come first.
	pal.Found
}

// String is the action on one line, for logs and tests.
func (a Action) String() string {
	if a.Kind == Preempt {
		return fmt.Sprintf("%s %s for %s", a.Kind, a.Job, a.For)
	}
	return fmt.Sprintf("%s %s on %v", a.Kind, a.Job, a.Placement)
}
