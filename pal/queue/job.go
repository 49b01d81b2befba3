// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Job is a gang and the properties of its job that the Queue needs.
type Job struct {
	ID   string
	Name string // key of its run history; "": none
	// Tenant is the job's namespace. The job's GPUs count in the quota and the fair share of this
	// namespace's tenant.
	Tenant string
	// User is the owner of the job, for limits of users; "" means none.
	User     string
	Gang     pal.Gang
	Priority int // a higher number goes first; see Options.JobPriority
	// Submitted is the time of submission, since the caller's epoch.
	Submitted time.Duration
	// Estimate is the user's estimate of the job's run time on the best GPUs that the gang can get; 0
	// means that the user gave none. Best is the gang's cost on these GPUs; 0 counts as 1.
	Estimate time.Duration
	Best     float64
	// Limit is the run time after which Nomad ends a run (max_run_duration); 0 means no limit. The
	// expected run time is at most Limit, and equal to Limit if nothing else is known.
	Limit time.Duration
	// Attained is how long the job had run when it was submitted to this Queue, or restored in it.
	// Waited is how long the job waited before its first run and between its runs until then.
	Attained, Waited time.Duration
	// Booked is set for a restored gang. The usage of its run is already counted up to the time
	// Booked. 0 means that no usage of the run is counted yet.
	Booked time.Duration
	// Done is the work that the job did during Attained, as time at cost 1. 0 means that Done
	// equals Attained.
	Done time.Duration
	// If Preemptible is set, the gang may be stopped and started again later. If Migratable is set,
	// the gang may be moved. RestartCost is the run time that each stop or move loses.
	Preemptible, Migratable bool
	RestartCost             time.Duration
	// Checkpoint is the time between checkpoints. The first interval begins RestartCost after the
	// gang's start. A stop loses the work since the last checkpoint. 0 means that nothing is lost,
	// or that the interval is unknown.
	Checkpoint time.Duration
	// Array names the array to which the job belongs. At most ArrayParallel jobs of an array run at
	// a time; 0 means no limit.
	Array         string
	ArrayParallel int
	// Least makes the gang elastic: the gang can run with any number of members from Least to all.
	// An elastic gang has a single member set, and Estimate and Done apply to a run with all
	// members. If Least is 0, the gang is not elastic.
	Least int
	// Anywhere is set if the gang does not wait for GPUs that are faster or closer together.
	Anywhere bool
	// Returns is set for a gang that lost its GPUs to a drain or with a node. It keeps its place: it
	// goes before the other waiting gangs of its priority.
	Returns bool
	// Endless is set for a service, which runs until somebody stops it. No gang waits for a
	// service's GPUs, unless the service is preemptible.
	Endless bool
}

// Order is the name of an order of the queue.
type Order string

// The orders. All of them sort gangs of equal rank by the time of submission.
const (
	FIFO Order = "fifo" // by the time of submission
	LAS  Order = "las"  // least attained GPU time first, in levels (Tiresias)
	SRTF Order = "srtf" // shortest expected remaining time first
	// Adaptive puts the gang with the least expected remaining GPU time first. The expectation uses
	// estimates, earlier runs of the same name, the gangs' own reports, and limits. If none of
	// these is known, a gang is expected to run as long again as it has run so far, but at least
	// for DefaultRuntime.
	Adaptive Order = "adaptive"
)

// Orders returns all orders.
func Orders() []Order { return []Order{FIFO, LAS, SRTF, Adaptive} }

// ParseOrder parses the name of an order.
func ParseOrder(s string) (Order, error) {
	return pal.ParseName("queue order", s, Orders()...)
}

// Options are the queue's policy.
type Options struct {
	Order     Order
	Placement pal.Policy
	// Backfill says which gangs may start before the head; "" means [BackfillNone].
	Backfill Backfill
	// MaxWait is the total wait after which a gang is overdue if it has neither an estimate nor a
	// limit; 0 means [DefaultMaxWait].
	MaxWait time.Duration
	// Patience says when gangs with an estimate or a limit are overdue: after they have waited for
	// Patience × the estimate or the limit, whichever is shorter, but at least for an hour. If
	// Patience is 0, these gangs are overdue after MaxWait.
	Patience float64
	// Credit is the fraction of a preemptible gang's GPU time that counts for its place in the
	// queue under Adaptive. Without this discount, preemptible gangs would gain less than the gangs
	// for which they are stopped. The discount also makes it harder for other gangs to stop
	// preemptible gangs, unless these other gangs are shorter than DefaultRuntime. 0 means no
	// discount.
	Credit float64
	// OverdueShare is the fraction of the cluster's GPU time that serves overdue gangs in the long
	// run, in order of submission; 0 means [DefaultOverdueShare].
	OverdueShare float64
	// Preempt lets waiting gangs stop preemptible gangs of worse levels.
	Preempt bool
	// Migrate lets the Queue move migratable gangs if a move saves more than twice its cost.
	Migrate bool
	// LocalityWait lets a gang wait for GPUs that are faster or closer together if the gang would
	// be much slower on the free GPUs. The gang waits for at most the time that the wait is
	// expected to save. A gang that can be moved later waits for at most a quarter of the time that
	// it would save. With LocalityWait, gangs can move even while other gangs wait.
	LocalityWait bool
	// OutlierThreshold is the PM score above which a GPU is an outlier for a class. A gang does not
	// use outliers, unless it could never run without them. With LocalityWait, a gang of one GPU
	// can use an outlier after it has waited for a better GPU. 0 means that no GPU is an outlier.
	OutlierThreshold float64
	// Quantum is the attained GPU time at which the first level of LAS ends. 0 means
	// [DefaultQuantum].
	Quantum time.Duration
	// DefaultRuntime is the expected run time of a new gang about which nothing is known; 0 means
	// [DefaultRuntime]. The bounds between the levels of SRTF and Adaptive are proportional to
	// DefaultRuntime.
	DefaultRuntime time.Duration
	// Tenants is the configuration of tenants, by path. A namespace that belongs to no tenant has
	// no quota and the weight 1.
	Tenants map[string]Tenant
	// FairShare puts gangs of different tenants in order: first the gangs of the tenant that has
	// used the least GPU time relative to its weight. Order then sorts the gangs of one tenant.
	FairShare bool
	// HalfLife is the time after which used GPU time counts half; 0 means that only GPUs in use
	// count.
	HalfLife time.Duration
	// JobPriority puts gangs of a higher [Job.Priority] first, and lets them stop preemptible gangs
	// of a lower one. JobPriority counts before Order. With FairShare, it counts only between
	// gangs of the same tenant.
	JobPriority bool
	// Starts is the number of actions after which a pass ends; 0 means no limit. The next pass
	// continues with the remaining gangs.
	Starts int
}

// Backfill says which gangs may start while the head of the queue waits for GPUs. The head is the
// first gang that does not fit.
type Backfill string

// The kinds of backfill.
const (
	BackfillNone     Backfill = "none"     // no gang: strict order
	BackfillReserved Backfill = "reserved" // gangs that do not delay the predicted start of the head (EASY)
	// BackfillBestEffort lets every gang start that fits, even if the head then waits longer, as
	// Kueue's BestEffortFIFO does. BackfillBestEffort needs no run-time estimates.
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
	// DefaultPatience means, for example, that a gang with an estimate of two hours is overdue
	// after a wait of four hours.
	DefaultPatience = 2
	DefaultQuantum  = time.Hour
	leastQuantum    = time.Second // with less, the Queue would decide again and again
	// DefaultCredit lets preemptible gangs gain as much from preemption as other gangs (make
	// sim-users).
	DefaultCredit = 0.4
	// DefaultRuntime has an effect only if other gangs are known to run for a shorter or a longer
	// time.
	DefaultRuntime = 10 * time.Minute
	// DefaultOutlierThreshold is the PM score above which a GPU is an outlier.
	DefaultOutlierThreshold = 1.5
	// DefaultRoomForWide makes gangs leave room for wide gangs, if the speeds of the GPUs in
	// question differ by at most 10 %. The speeds of GPUs that are not outliers differ by about 10
	// %. See [pal.Policy].
	DefaultRoomForWide = 0.1
)

// Default returns the default policy of the agent and of the simulator's tables. Each job's own
// settings decide whether it may be stopped or moved.
func Default() Options {
	place := Placement(pal.PAL)
	place.RefuseBad = true
	return Options{Order: Adaptive, Placement: place, Backfill: BackfillReserved,
		Preempt: true, Migrate: true, LocalityWait: true, OutlierThreshold: DefaultOutlierThreshold, JobPriority: true,
		MaxWait: DefaultMaxWait, Patience: DefaultPatience, Credit: DefaultCredit, OverdueShare: DefaultOverdueShare, Quantum: DefaultQuantum, DefaultRuntime: DefaultRuntime, HalfLife: DefaultHalfLife}
}

// Placement returns the placement policy of that name, as the agent uses it by default. Only the
// policy PAL has a default setting: [DefaultRoomForWide].
func Placement(name pal.PolicyName) pal.Policy {
	p := pal.Policy{Name: name}
	if name == pal.PAL {
		p.RoomForWide = DefaultRoomForWide
	}
	return p
}

// withDefaults returns the options with the defaults filled in, or an error if they are invalid.
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
	switch {
	case o.MaxWait < 0 || o.Quantum < 0 || o.DefaultRuntime < 0:
		return o, fmt.Errorf("queue: max_wait %v, quantum %v and default_runtime %v must not be negative", o.MaxWait, o.Quantum, o.DefaultRuntime)
	case o.Quantum > 0 && o.Quantum < leastQuantum:
		return o, fmt.Errorf("queue: quantum %v is below %v", o.Quantum, leastQuantum)
	case o.HalfLife < 0:
		return o, fmt.Errorf("queue: usage_half_life %v must not be negative", o.HalfLife)
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

// Kind is the kind of an action.
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

// Action is one action that Decide returns.
type Action struct {
	Kind Kind
	Job  string
	For  string // the gang that needs the GPUs; set for Preempt, and for Resize to fewer members
	// For Start and Migrate, Found contains the GPUs to start on. For Resize, Found contains all
	// members that the gang has after the change. The members that keep running come first.
	pal.Found
}

// String returns the action as one line, for logs and tests.
func (a Action) String() string {
	if a.Kind == Preempt {
		return fmt.Sprintf("%s %s for %s", a.Kind, a.Job, a.For)
	}
	return fmt.Sprintf("%s %s on %v", a.Kind, a.Job, a.Placement)
}
