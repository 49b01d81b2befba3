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
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/failure"
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
	// Observation is what Nomad shows after the job, a member or the cluster
	// has changed.
	Observation struct {
		Observed
		Request request.Request
		Refused error // why the job cannot be served
		// BroughtBack is set if Nomad wrote one of our registrations late, after the author had
		// purged the job.
		BroughtBack bool
	}
	// Reconcile comes once a cycle, and makes the gang do whatever is due.
	Reconcile struct {
		// Last is set if no other reconcile follows because the placer ends, so nothing is put off.
		Last bool
	}
	// Sync lets the gang tell the queue what happened to the gang.
	Sync struct {
		// Unread is set if the cycle had no time to read what earlier placers wrote about the gang.
		Unread bool
		// After is set while a job in the gang's pal_after has not succeeded yet. Eligible is when
		// the last of these jobs succeeded; zero if there is no pal_after.
		After    bool
		Eligible time.Time
	}
	// Start is the queue's decision to start the gang, with the reasons. Job is the job with the
	// pins.
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
	// Resize is the queue's decision that an elastic gang continues with the members of a
	// placement: more members than now, or fewer members to make room for another job.
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
	// SourceRead answers [ReadSource]. Source is nil if Nomad has no source or did not answer in
	// time.
	SourceRead struct{ Source *api.JobSubmission }
	// Registered answers [Register] and [Commit] with the job as Nomad has it now.
	Registered struct{ Observed }
	// Done answers any other effect that was carried out.
	Done struct{ Of Effect }
	// NotNow answers an effect that was not tried, because a rate limit applies, a newer event
	// rules the effect out, or the cycle ran out of time.
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
func (SourceRead) event() Kind      { return OnAnswer }
func (Registered) event() Kind      { return OnAnswer }
func (Done) event() Kind            { return OnAnswer }
func (NotNow) event() Kind          { return OnAnswer }
func (Failure) event() Kind         { return OnAnswer }

// Effect is an action that the placer must carry out for a gang.
type Effect interface{ awaits() (answer bool) }

// Effects on Nomad. Each of these effects has an answer, for which the gang waits.
type (
	ReadRecord   struct{}
	ReadVersions struct{}
	ReadAllocs   struct{}
	// ReadSource reads the jobspec that the author wrote; Nomad keeps it with
	// the job.
	ReadSource struct{}
	// ReadEvaluations reads the job's evaluations. If Limited is set, the read counts towards a
	// rate limit, and can be put off.
	ReadEvaluations struct{ Limited bool }
	// ReadDeployment reads whether a deployment of the job is active.
	ReadDeployment struct{}
	// Register registers the job by check-and-set over its observed index. Source is the job's
	// source; if nil, the source is read with the registration.
	Register struct {
		Why    Purpose
		Job    *api.Job
		Source *SourceRead
	}
	// Commit registers the job with the pins of a [Start]. If DryRun is set, the placer first asks
	// Nomad whether it would place the job.
	Commit struct {
		Start
		DryRun bool
	}
	StopMembers struct{ Allocs []string }
	Deregister  struct {
		Why   Purpose
		Purge bool
	}
	// Evaluate has Nomad evaluate the job again: see [memory.keepPending].
	Evaluate struct{}
	// WriteRecord writes the record before the gang takes its next step.
	WriteRecord struct{ Record Record }
)

// Effects within the placer, which have no answer.
type (
	// SaveRecord writes the record soon, together with other records.
	SaveRecord struct{ Record Record }
	// Own records that the placer itself gave the job these GPUs, whatever GPUs the job's pins
	// name.
	Own struct{ GPUs []string }
	// Take allocates GPUs in the cycle's view of the cluster. Release frees these GPUs again.
	Take struct {
		Gang      pal.Gang
		Placement pal.Placement
	}
	Release struct {
		Gang      pal.Gang
		Placement pal.Placement
	}
	// Keep allocates those GPUs of a placement that are free in the cycle's view; the gang already
	// has the other GPUs.
	Keep struct{ Placement pal.Placement }
	// Again asks for another cycle at once.
	Again struct{}
	// Log is a message for operators.
	Log struct {
		Level Level
		Text  string
		Args  []any // keys and values
	}

	// Enqueue puts the gang into the queue; Since is the time when the gang began to wait. Dequeue
	// takes the gang out of the queue. If Finished is set, the gang has succeeded, and the queue
	// learns from the gang's run.
	Enqueue struct {
		Job   queue.Job
		Since time.Time
	}
	Dequeue struct{ Finished bool }
	// QueueStarted tells the queue where the gang runs. QueueRestored puts a running gang into the
	// queue, and tells the queue where the gang runs. QueueStopped tells the queue that the gang no
	// longer runs, QueueRequeued that its start failed, and QueueKept that the gang is not stopped
	// after all.
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
	// StartAtTarget reports that the whole gang has stopped and can start on its target's GPUs.
	StartAtTarget struct{ Why StopReason }
	// Placed reports that Nomad has stored the job with the pins of a start. Record has the
	// reasons.
	Placed struct{ Record Record }
	// CountMove counts a move that began, because the number of moves per hour is limited.
	CountMove struct{ At time.Time }
)

func (ReadRecord) awaits() bool      { return true }
func (ReadVersions) awaits() bool    { return true }
func (ReadAllocs) awaits() bool      { return true }
func (ReadSource) awaits() bool      { return true }
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
func (CountMove) awaits() bool       { return false }

// Purpose is what a registration or a deregistration is for.
type Purpose string

// The purposes.
const (
	ToStart   Purpose = "start"   // write the pins of a decision
	ToStop    Purpose = "stop"    // gate the job, to stop its members
	ToGoOn    Purpose = "go-on"   // open the job's gate, so that the job keeps running
	ToAsk     Purpose = "ask"     // gate the job, as its author would to request more members
	ToRestore Purpose = "restore" // give the job its former pins
	ToResize  Purpose = "resize"  // place the gang again with its new size
	ToGrow    Purpose = "grow"    // add members to an elastic gang
	ToShrink  Purpose = "shrink"  // remove members from an elastic gang
	ToExtend  Purpose = "extend"  // give the missing members more nodes
	ToCanary  Purpose = "canary"  // make room for the canaries
	ToUndo    Purpose = "undo"    // undo a lost update: stop, purge or restore
	ToFinish  Purpose = "finish"  // stop a job that has finished
)

// Level is the log level of a [Log], with hclog's numbers.
type Level int

// The levels.
const (
	Debug Level = iota + 2
	Info
	Warn
)

// Book has the starts that Nomad has not answered. A Book outlives gangs, because Nomad can write a
// start even after the job was purged.
type Book interface {
	// Unanswered returns the starts that Nomad did not answer and that replace this version of a
	// job. Nomad may have written these starts, or may still write them. At most one of these
	// starts succeeds.
	Unanswered(version *api.Job) []Start
}

// World answers a gang's questions about the rest of the placer in this cycle. The methods of World
// change nothing and make no requests. Package model implements World.
type World interface {
	Book
	Now() time.Time
	// ReadyTimeout is how long a gang can be incomplete before the placer repairs or requeues it.
	// Retries is how often a gang is retried after its own failures. RestartCost is the run time
	// that a restart loses.
	ReadyTimeout() time.Duration
	Retries() int
	RestartCost() time.Duration
	// NodeChanges returns a number that grows with each change of a node.
	NodeChanges() uint64
	// Allocs returns all of a job's allocations that Nomad lists.
	Allocs(cluster.JobKey) []*cluster.Alloc
	// LastFailure returns the last failure of the job's present version; nil if there is none.
	LastFailure(*api.Job) *failure.Failure
	// Holds returns the GPUs that the job holds, as indexes of the cluster's GPUs. GPUIDs returns
	// the ids of GPUs by their indexes. Reserved reports whether a decision holds GPUs for the job.
	Holds(cluster.JobKey) []int
	GPUIDs([]int) []string
	Reserved(cluster.JobKey) bool
	// OthersHold reports whether other jobs hold some of these GPUs, by id.
	OthersHold(cluster.JobKey, []string) bool
	// Forbids reports whether the job must not run where these members run.
	Forbids(*api.Job, []*cluster.Alloc) bool
	// Request returns what the job requests, or why it cannot be served.
	Request(Observed) (request.Request, error)
	// Running returns the placement of a gang on these GPUs. Describe returns a placement in the
	// form of a decision's choice.
	Running(request.Request, []int) pal.Placement
	Describe(pal.Gang, pal.Placement) *pal.Choice
	// Pin writes pins into a job.
	Pin(*api.Job, rewrite.Pins) (*api.Job, error)
	// Resized returns the pins of an elastic gang with the members of a placement.
	Resized(*Lifecycle, pal.Placement) (rewrite.Pins, error)
	// RoomForMissing returns room for the missing members. RoomForCanaries returns room for the
	// canaries of a new version.
	RoomForMissing(*Lifecycle) (Room, error)
	RoomForCanaries(*Lifecycle) (Room, error)
	// Policy returns the name of the placement policy.
	Policy() string
}

// Room is a placement that fits, or the reason that no placement fits. As an event, a Room is the
// queue's offer to a running gang whose author now requests other GPUs ([Lifecycle.Asks]).
type Room struct {
	Fits      bool
	Reason    reason.Reason // why no placement fits
	Gang      pal.Gang
	Placement pal.Placement
	Pins      rewrite.Pins // all pins of the job
	Mode      rewrite.Mode
	Decision  pal.Decision
}

// ErrNoVersion means that Nomad no longer keeps the version of the job that the placer needs.
var ErrNoVersion = errors.New("the job no longer has this version in Nomad")
