// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"errors"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Event is something that happened to a gang.
type Event interface{ event() Kind }

// Kind is the kind of an event. The table lists handlers by kind.
type Kind string

// The kinds. An answer is handled in the same way in all states.
const (
	OnObserve   Kind = "observe"
	OnReconcile Kind = "reconcile"
	OnSync      Kind = "sync"
	OnStart     Kind = "start"
	OnPreempt   Kind = "preempt"
	OnMove      Kind = "move"
	OnResize    Kind = "resize"
	OnRoom      Kind = "room"
	OnAnswer    Kind = "answer"
)

type (
	// Observation describes the job and its members as Nomad shows them, after the job, a member or
	// the cluster has changed.
	Observation struct {
		Observed
		Request request.Request
		Refused error // why the job cannot be served
		// Overwrote is true if Nomad wrote a registration of the placer late, over a change by the
		// author. Recreated is true if this change was a purge.
		Overwrote, Recreated bool
	}
	// Reconcile makes the gang carry out all duties that are due. Reconcile comes once a cycle.
	Reconcile struct {
		// Last is true if the placer is about to end. No other Reconcile follows in this case, so
		// the gang must not postpone anything.
		Last bool
	}
	// Sync lets the gang tell the queue about changes of the gang.
	Sync struct {
		// Unread is true if the cycle had no time to read the data that earlier placers wrote about
		// the gang.
		Unread bool
		// After is true while the gang waits for the jobs in its pal_after or for its pal_begin, or is
		// on hold. Eligible is the time when the wait for these hints ended, or zero if the gang has
		// neither hint.
		After    bool
		Eligible time.Time
	}
	// Start is the queue's decision to start the gang. Record contains the reasons. Job is the job
	// with the pins of the decision.
	Start struct {
		Job       *api.Job
		Pins      rewrite.Pins
		Placement pal.Placement
		Record    Record
	}
	// Preempt is the queue's decision to stop the gang for another job.
	Preempt struct{ For string }
	// Move is the queue's decision to move the gang to better GPUs.
	Move struct{ To pal.Placement }
	// Resize is the queue's decision to change the number of members of an elastic gang to the
	// number in a placement. A smaller number makes room for another job.
	Resize struct {
		To  pal.Placement
		For string
	}
)

func (Observation) event() Kind { return OnObserve }
func (Reconcile) event() Kind   { return OnReconcile }
func (Sync) event() Kind        { return OnSync }
func (Start) event() Kind       { return OnStart }
func (Preempt) event() Kind     { return OnPreempt }
func (Move) event() Kind        { return OnMove }
func (Resize) event() Kind      { return OnResize }
func (Room) event() Kind        { return OnRoom }

// The answers to effects.
type (
	// RecordRead answers [ReadRecord]. Record is nil if the gang has no record, or if the record
	// cannot be parsed.
	RecordRead struct{ Record *Record }
	// VersionsRead answers [ReadVersions]. EvaluationsRead answers [ReadEvaluations]. AllocsRead
	// answers [ReadAllocs]. DeploymentRead answers [ReadDeployment].
	VersionsRead    struct{ Versions map[uint64]*api.Job }
	EvaluationsRead struct{ Evaluations []*api.Evaluation }
	AllocsRead      struct{ Allocs []*cluster.Alloc }
	DeploymentRead  struct{ Active bool }
	// Registered answers [Register] and [Commit] with the job that Nomad now has.
	Registered struct{ Observed }
	// Done answers an effect of any other kind, after the placer has carried out the effect.
	Done struct{ Of Effect }
	// NotNow answers an effect that the placer did not try, because of a rate limit, because a
	// newer event makes the effect wrong, or because the cycle ran out of time.
	NotNow struct{ Of Effect }
	// Failure answers an effect that could not be carried out. Err is a [*DryRunRefusal] if Nomad
	// would not place the gang.
	Failure struct {
		Of       Effect
		Err      error
		Conflict bool // the job has changed
		Unknown  bool // the effect may have been carried out
	}
)

func (RecordRead) event() Kind      { return OnAnswer }
func (VersionsRead) event() Kind    { return OnAnswer }
func (EvaluationsRead) event() Kind { return OnAnswer }
func (AllocsRead) event() Kind      { return OnAnswer }
func (DeploymentRead) event() Kind  { return OnAnswer }
func (Registered) event() Kind      { return OnAnswer }
func (Done) event() Kind            { return OnAnswer }
func (NotNow) event() Kind          { return OnAnswer }
func (Failure) event() Kind         { return OnAnswer }

// Effect is an action that the placer must carry out for a gang.
type Effect interface{ awaits() (answer bool) }

// Effects on Nomad. Nomad answers each effect of this kind, and the gang waits for the answer.
type (
	ReadRecord   struct{}
	ReadVersions struct{}
	ReadAllocs   struct{}
	// ReadEvaluations reads the job's evaluations. If Limited is true, a rate limit applies, and
	// the placer can postpone the read.
	ReadEvaluations struct{ Limited bool }
	// ReadDeployment reads whether a deployment of the job is active.
	ReadDeployment struct{}
	// Register registers the job with check-and-set: the registration fails if the job's index is
	// not the observed index. The registration also fails if one of the members in While no longer
	// runs.
	Register struct {
		Why   Purpose
		Job   *api.Job
		While []string // ids of allocations
		size  *Resize  // the decision that ToSize carries out
	}
	// Commit registers the job with the pins of a [Start]. If DryRun is true, the placer first asks
	// Nomad in a dry run whether Nomad would place the job.
	Commit struct {
		Start
		DryRun bool
	}
	StopMembers struct{ Allocs []string }
	Deregister  struct {
		Why   Purpose
		Purge bool
	}
	// Evaluate asks Nomad to evaluate the job again (see [memory.keepPending]).
	Evaluate struct{}
	// WriteRecord writes the record at once. The gang takes its next step only after the write.
	WriteRecord struct{ Record Record }
)

// The following effects happen within the placer and have no answer.
type (
	// SaveRecord writes the record a little later, together with other records.
	SaveRecord struct{ Record Record }
	// Own records that the placer itself pinned the job to these GPUs.
	Own struct{ GPUs []string }
	// Take allocates GPUs to the gang in the cycle's view of the cluster. Release frees the GPUs
	// again.
	Take struct {
		Gang      pal.Gang
		Placement pal.Placement
	}
	Release struct {
		Gang      pal.Gang
		Placement pal.Placement
	}
	// Keep allocates the GPUs of a placement that are free in the cycle's view. The gang already
	// has the other GPUs of the placement.
	Keep struct{ Placement pal.Placement }
	// Again asks the placer to start another cycle immediately.
	Again struct{}
	// Log is a message for operators.
	Log struct {
		Level Level
		Text  string
		Args  []any // keys and values
	}

	// Enqueue puts the gang into the queue. Since is the time when the gang began to wait. Dequeue
	// takes the gang out of the queue. If Finished is true, the gang has succeeded, and the queue
	// learns from the run time of the gang.
	Enqueue struct {
		Job   queue.Job
		Since time.Time
	}
	Dequeue struct{ Finished bool }
	// QueueStarted tells the queue on which GPUs the gang runs. QueueRestored puts a running gang
	// into the queue, and tells the queue the gang's GPUs. QueueStopped tells the queue that the
	// gang no longer runs. QueueRequeued tells the queue that the gang's start failed. QueueKept
	// tells the queue that the gang keeps running although a stop was planned.
	QueueStarted  struct{ Placement pal.Placement }
	QueueRestored struct {
		Job       queue.Job
		Placement pal.Placement
		Since     time.Time
		Ends      bool // the gang is being stopped, and it is unknown for which other gang
	}
	QueueStopped  struct{}
	QueueRequeued struct{}
	QueueKept     struct{}
	// QueueSettled tells the queue that the gang must not move and must keep its size.
	QueueSettled struct{}
	// StartAtTarget reports that the whole gang has stopped and can start on its target GPUs.
	StartAtTarget struct{ Why StopReason }
	// Placed reports that Nomad has stored the job with the pins of a start. Record has the
	// reasons.
	Placed struct{ Record Record }
	// Sized reports that Nomad has stored another number of members of an elastic gang. GPUs are the
	// GPUs that the gang then has. For is the job (namespace/id) in whose favour the gang shrinks.
	Sized struct {
		From, To int
		GPUs     []string
		For      string
	}
)

func (ReadRecord) awaits() bool      { return true }
func (ReadVersions) awaits() bool    { return true }
func (ReadAllocs) awaits() bool      { return true }
func (ReadEvaluations) awaits() bool { return true }
func (ReadDeployment) awaits() bool  { return true }
func (Register) awaits() bool        { return true }
func (Commit) awaits() bool          { return true }
func (StopMembers) awaits() bool     { return true }
func (Deregister) awaits() bool      { return true }
func (Evaluate) awaits() bool        { return true }
func (WriteRecord) awaits() bool     { return true }
func (SaveRecord) awaits() bool      { return false }
func (Own) awaits() bool             { return false }
func (Take) awaits() bool            { return false }
func (Release) awaits() bool         { return false }
func (Keep) awaits() bool            { return false }
func (Again) awaits() bool           { return false }
func (Log) awaits() bool             { return false }
func (Enqueue) awaits() bool         { return false }
func (Dequeue) awaits() bool         { return false }
func (QueueStarted) awaits() bool    { return false }
func (QueueRestored) awaits() bool   { return false }
func (QueueStopped) awaits() bool    { return false }
func (QueueRequeued) awaits() bool   { return false }
func (QueueKept) awaits() bool       { return false }
func (QueueSettled) awaits() bool    { return false }
func (StartAtTarget) awaits() bool   { return false }
func (Placed) awaits() bool          { return false }
func (Sized) awaits() bool           { return false }

// Purpose is the reason for which the placer registers or deregisters a job.
type Purpose string

// The purposes.
const (
	ToStart   Purpose = "start"   // write the pins of a decision
	ToStop    Purpose = "stop"    // gate the job, to stop its members
	ToGoOn    Purpose = "go-on"   // open the job's gate, so that the job keeps running
	ToAsk     Purpose = "ask"     // gate the job, as its author would to request more members
	ToRestore Purpose = "restore" // give the job its former pins
	ToResize  Purpose = "resize"  // place the gang again with its new size
	ToSize    Purpose = "size"    // change the number of members of an elastic gang
	ToUndo    Purpose = "undo"    // undo a lost update: stop, purge or restore
	ToFinish  Purpose = "finish"  // stop a job that has finished
	ToRelease Purpose = "release" // take the pins off, so that Nomad alone manages the job
)

// Level is the log level of a [Log], with hclog's numbers.
type Level int

// The levels.
const (
	Debug Level = iota + 2
	Info
	Warn
)

// Book contains registrations that start gangs and that Nomad has not answered. A Book must
// remember a start even if the job is purged, because Nomad may store the job again when it
// processes the start.
type Book interface {
	// Unanswered returns the unanswered starts that would replace this version of the job. Nomad
	// may already have stored an unanswered start, or may still store it. At most one of the
	// unanswered starts can succeed.
	Unanswered(version *api.Job) []Start
}

// World tells a gang about the rest of the placer in this cycle. The methods of World change
// nothing and make no requests. Package model implements World.
type World interface {
	Book
	Now() time.Time
	// ReadyTimeout is how long a gang can be incomplete before the placer repairs or requeues it.
	// Retries is how often the placer retries a gang after failures that the gang itself caused.
	// RestartCost is the run time that a gang loses when it restarts.
	ReadyTimeout() time.Duration
	Retries() int
	RestartCost() time.Duration
	// NodeChanges returns a number that grows with each change of a node.
	NodeChanges() uint64
	// Allocs returns all allocations of a job that Nomad lists.
	Allocs(cluster.JobKey) []*cluster.Alloc
	// LastFailure returns the last failure of the job's present version, or nil if there is none.
	LastFailure(*api.Job) *palapi.Failure
	// NodeLost reports whether the node of an allocation is down or disconnected, or was down when
	// the allocation ended.
	NodeLost(*cluster.Alloc) bool
	// Holds returns the GPUs that the job holds, as indexes of the cluster's GPUs. GPUIDs converts
	// indexes of GPUs to ids. Reserved reports whether a decision reserves GPUs for the job in this
	// cycle.
	Holds(cluster.JobKey) []int
	GPUIDs([]int) []string
	Reserved(cluster.JobKey) bool
	// OthersHold reports whether another job holds any of these GPUs.
	OthersHold(cluster.JobKey, []string) bool
	// Forbids reports whether the job must not run where these members run, for example because of
	// the job's constraints.
	Forbids(*api.Job, []*cluster.Alloc) bool
	// Request returns what the job requests, or an error if the placer cannot serve the job.
	Request(Observed) (request.Request, error)
	// Running returns the placement of a gang that runs on these GPUs. Describe describes a
	// placement as a [pal.Choice].
	Running(request.Request, []int) pal.Placement
	Describe(pal.Gang, pal.Placement) *pal.Choice
	// Pin writes pins into a copy of a job.
	Pin(*api.Job, rewrite.Pins) (*api.Job, error)
	// Resized returns the pins that give an elastic gang the members of a placement.
	Resized(*Lifecycle, pal.Placement) (rewrite.Pins, error)
	// Policy returns the name of the placement policy.
	Policy() string
}

// Room is either a placement or the reason that no placement fits. Room is also an event: the queue
// offers GPUs to a running gang whose author now requests other GPUs ([Lifecycle.Asks]).
type Room struct {
	Fits      bool
	Reason    reason.Reason // why no placement fits
	Gang      pal.Gang
	Placement pal.Placement
	Pins      rewrite.Pins // all pins of the job
	Mode      rewrite.Mode
	Decision  pal.Decision
}

// ErrNoVersion means that the placer needs a version of the job that Nomad no longer keeps.
var ErrNoVersion = errors.New("the job no longer has this version in Nomad")
