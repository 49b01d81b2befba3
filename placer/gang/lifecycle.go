// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package gang models the life of one job with GPUs as a state machine: its states, the events in
// each, and the resulting actions.
//
// [Lifecycle.Step] takes an [Event] and returns [Effect]s. Step does no I/O, reads no clock and
// logs nothing. The placer carries out the effects one after another, and delivers each answer as
// an event. A gang that waits for an answer does nothing else. The table in table.go lists what is
// due in each state, and what each event does in that state. docs/design/gang-states.md is
// generated from this table. Read state.go first, then table.go, event.go and step.go; each other
// file has one handler or rule, named after it.
//
// # What must stay true
//
// Nomad is the only source of truth. [Observed] follows from Nomad's objects alone. So if a placer
// crashes between any two effects, the next placer finds the gang in a state from which it can
// continue. The other fields of a [Lifecycle] save requests, or distinguish cases that look the
// same in Nomad. For example, a gang that this placer is stopping looks like a gang that another
// placer was stopping when it crashed.
//
// A [Lifecycle] has four layers, and each embeds the next: Lifecycle (steps under way and this
// reconcile's answers), memory (what was done for the job), known (what else was read about the
// job), and [Observed] (what Nomad's objects show). A method may change only the layer of its
// receiver and the layers inside it. As the receiver of a new method, choose the innermost layer
// that has the fields that the method changes. No method changes an Observed. Events replace an
// Observed as a whole; the comment of [Observed] names the one exception.
//
// [World] answers a gang's questions about the rest of the placer in this cycle. The methods of
// World change nothing and make no requests. Package model implements it. If a handler needs
// something new from the model, add a method to [World], to package model and to fakeWorld
// (world_test.go).
//
// At most one effect of a step has an answer, and it is the last one. No other event comes before
// the answer. After an answer the duties begin again with the first one, so each duty must find out
// by itself what was already read or done.
//
// # To add a state
//
//   - Declare the state in state.go, and add it to [States] and to meanings.
//   - If Nomad's objects alone show the state, derive the state in [Observed.state], and name it in
//     the comment of Observed.Nomad. Otherwise derive the state in [Lifecycle.State]. [State.Ours]
//     decides whether the placer acts in the state.
//   - In table.go, list the duties of the state. (Each state of ours has duties, except
//     Unschedulable, which the machine treats as Waiting.) Add to own the handlers that differ from
//     those in elsewhere. Name the state in the field to of each duty and handler that leads to it.
//   - Decide in [Lifecycle.Quiet] whether a gang in this state needs attention in each cycle, and
//     in memory.Unsettled whether something becomes due in this state without an event.
//   - Serve the readers of the state: events (placer/events.go), counts (placer/model/runs.go),
//     metrics and page (placer/agent), explain (placer/query) and the commands
//     (placer/cmd/nomad-pal). Searching for gang.Completing finds most of the readers. The page and
//     the API schema have the name as text.
//
// # To add an event
//
//   - Declare the type in event.go, with its method event. An event that is no answer gets a [Kind]
//     of its own, an entry in elsewhere (all states must handle it), and entries in own. Add the
//     Kind to kinds in table_test.go.
//   - An answer returns [OnAnswer], and [Lifecycle.answer] handles it in all states.
//   - Deliver the event with placer.Placer.step, which carries out the effects.
//   - Let stories_test.go read the event, and random_test.go send it.
//
// # To add an effect
//
//   - Declare the type in event.go, with its method awaits.
//   - Carry out the effect in placer/effects.go, which has one function for effects with an answer,
//     one for effects without an answer, and one that notes changes of jobs. Two kinds of effects
//     are carried out elsewhere: [Commit] in placer/decide.go, and effects that change only the
//     model in model.Model.Update.
//   - If the effect has an answer, handle the answer in [Lifecycle.answer] or [Lifecycle.done], and
//     the effect's failure in [Lifecycle.failed] and [Lifecycle.putOff].
//   - The compiler does not notice an effect without a case. The placer would do nothing, and
//     answer [Done] if the effect has an answer. Package placer's TestEveryEffectIsCarriedOut finds
//     such an effect.
//   - Describe the effect in told (stories_test.go), and answer it in random_test.go. Add to check,
//     in random_test.go, what must always hold.
//
// After a change of the table, run TestDrawing with -rewrite-docs.
package gang

import (
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/request"
)

// Lifecycle is the life of one job with GPUs. [Lifecycle.Step] changes a Lifecycle. Outside this
// package, package model and the placer set only Control, Refused, Queued, Placed and Target, the
// Observed of an isolated job, and the Job of a submitted job once it is registered. Package query
// changes only copies.
type Lifecycle struct {
	memory

	// asks is set once this reconcile has found that the author requests other GPUs: see
	// [Lifecycle.Asks]. runs is the version that the members of a resubmitted gang run.
	asks bool
	runs runs

	stop *stopping

	// sizing is the resize under way; nil if none.
	sizing *sizing

	// read holds the answers to this reconcile's effects. pending is the effect that waits for an
	// answer.
	read    readings
	pending Effect
}

// Of starts the life of a job from what Nomad shows.
func Of(o Observed) Lifecycle { return Lifecycle{memory: memory{known: known{Observed: o}}} }

// known is what is known about the job from Nomad, from people and from the placer's records.
type known struct {
	// Control holds people's orders about the job.
	Control Control
	Observed
	// Request is what the job requests. Refused is why the job cannot be served; nil if it can be.
	Request request.Request
	Refused error
	// Record is the last decision; nil if not known yet. Unsaved is set while Record is not stored.
	// Record is written when all members run, or after saveAfter.
	Record  *Record
	Unsaved bool
	// Since is the time when the placer first saw the present version.
	Since time.Time

	// Target has the GPUs on which the gang starts again after it has stopped; nil if the gang does
	// not move.
	Target   *pal.Placement
	position position

	// eligible is the time when the last job of the gang's pal_after succeeded; zero if the gang
	// has no pal_after.
	eligible time.Time
}

// memory is what is known about the job, and what was done for it.
type memory struct {
	known

	// Queued is set if the queue has the gang, as a waiting or a running gang. Placed is set if the
	// queue has it as a running gang.
	Queued, Placed bool
	// Reserved are the ids of GPUs that a decision reserves for the gang, whether or not allocations or
	// pins hold them.
	Reserved []string

	// Tries counts failures since the last success. The placer tries nothing before RetryAt.
	// trouble is the last failure, for people. trouble is a pointer, nil for most gangs, because a
	// snapshot copies every gang.
	Tries   int
	RetryAt time.Time
	trouble *reason.Reason
	// Never is why Nomad can place the gang on no node. The gang is not tried again until the
	// reason may have changed.
	Never *Never
	// stumbled is the type of the effect whose failure trouble describes.
	stumbled string

	// edited is set if the queue still has the gang's earlier request or priority, for example
	// after an edit by the author.
	edited bool
	// assumed is the job as we registered it last, until Nomad shows the result. overwrote is set
	// if that registration replaced a change that we had not seen. recreated is set if the job had
	// been purged, and that registration made a new job. lookedBack is set once it is known whether
	// an earlier placer overwrote a change.
	assumed                          *api.Job
	overwrote, recreated, lookedBack bool

	// lineage has the versions of the job that differ from one another only by our rewritings.
	// notFinished is the last check of whether the gang finished in one of these versions.
	lineage     lineage
	notFinished finishCheck

	// canariesLack is the JobModifyIndex of a version whose canaries lack room. canariesDone is the
	// JobModifyIndex of a version whose canaries have room.
	canariesLack, canariesDone uint64

	// evaluated is the job's ModifyIndex at evaluatedAt, when the placer last asked Nomad to
	// evaluate the job again.
	evaluated   uint64
	evaluatedAt time.Time
}

// readings are answers of Nomad that are valid for one reconcile.
type readings struct {
	Reconcile
	versions    map[uint64]*api.Job
	allocs      []*cluster.Alloc
	evaluations []*api.Evaluation

	deploys bool // a deployment of the job is active

	hasVersions, hasAllocs, hasEvaluations bool
	hasDeployment                          bool
	hasRecord                              bool
	record                                 *Record
	room                                   *Room // room for the new size, or for missing members; a pointer because a Room is large
}

// Age returns how long the placer has known the present version. Age uses the placer's own clock,
// because the servers' clocks may differ.
func (g *known) Age(now time.Time) time.Duration { return now.Sub(g.Since) }

// Ours reports whether the placer has something to do or to remember for the job. An ended job is
// ours, too, if we overwrote its author's change.
func (g *memory) Ours() bool { return g.Observed.Ours() || g.Nomad == Ended && g.overwrote }

// Overwrote reports whether our registration replaced a change that we had not seen. Such a
// registration must be undone before anything else is decided about the job.
func (g *memory) Overwrote() bool { return g.overwrote }

// MayHaveOverwritten reports whether our last registration replaced an unseen change, or whether
// this is unknown because Nomad has not shown the result yet. Until Nomad has shown the result, and
// a replaced change is restored, nothing else is registered over the job. After two of our
// registrations in a row, nobody could tell which of them replaced the author's change.
func (g *memory) MayHaveOverwritten() bool { return g.unverified() || g.overwrote }

// unverified reports whether Nomad has not shown the result of our last registration yet.
func (g *memory) unverified() bool { return g.assumed != nil && g.assumed == g.Job }

// verifyLater remembers the job as Nomad should have it after a registration, until an event shows
// the job as Nomad has it.
func (g *memory) verifyLater(job *api.Job) {
	if g.assumed = job; *job.JobModifyIndex == *g.Job.JobModifyIndex { // nothing changed, so no event will come
		g.assumed = nil
	}
}

// PastKnown reports whether two things are known: the gang's place in the queue, and whether an
// earlier registration of ours overwrote a change by its author. To know both, the placer must have
// read the records of earlier placers and the earlier versions.
func (g *memory) PastKnown() bool {
	if len(g.Pins.Groups) > 0 {
		return g.Record != nil && g.positionKnown() && !g.mustLookBack()
	}
	return g.Nomad != Waiting || g.position.index == *g.Job.JobModifyIndex || first(g.Job) // a first version has no past
}

// Quiet reports whether the gang needs no attention until an event. Most gangs are quiet most of
// the time. A running gang is quiet if it runs as it should, the queue has it as a running gang,
// and its record is written. A waiting gang is quiet if the queue has its present request.
func (g *Lifecycle) Quiet(b Book) bool {
	if g.Nomad == Waiting {
		return g.Queued && !g.Placed && !g.edited && g.Refused == nil && g.Target == nil && g.stop == nil && g.stumbled == "" &&
			len(b.Unanswered(g.Job)) == 0 && !g.MayHaveOverwritten() && g.PastKnown() && !cluster.Dead(g.Job) && g.eligible.IsZero()
	}
	return g.Nomad == Running && !g.Misplaced && !g.LeftOutBeside && g.Queued && g.Placed && g.Target == nil && !g.overwrote &&
		g.stumbled == "" && g.Record != nil && !g.Unsaved && !g.Record.Ready.IsZero() && g.Record.JobModifyIndex == *g.Job.JobModifyIndex &&
		(g.canariesDone == *g.Job.JobModifyIndex || !WantsCanaries(g.Observed))
}

// Unsettled reports whether something can become due without an event.
func (g *memory) Unsettled() bool {
	switch g.Nomad {
	case Starting, Stopping, Waiting:
		return true
	case Lost:
		return g.GaveUp().IsZero()
	case Resubmitted:
		return g.Tries > 0 // a failed step is tried again
	case Running:
		return g.stumbled != "" || g.LeftOutBeside || g.canariesDone != *g.Job.JobModifyIndex && WantsCanaries(g.Observed)
	}
	return false
}

// Trouble returns the last failure, for people; zero if there is none.
func (g *memory) Trouble() reason.Reason {
	if g.trouble == nil {
		return reason.Reason{}
	}
	return *g.trouble
}

// SetTrouble sets the last failure.
func (g *memory) SetTrouble(why reason.Reason) { g.trouble = &why }

// fail counts a failure and delays the next try: by 2 s, 4 s, and so on up to 5 min.
func (g *memory) fail(now time.Time, why reason.Reason) {
	g.Tries++
	g.RetryAt = now.Add(min(time.Second<<min(g.Tries, 10), 5*time.Minute))
	g.SetTrouble(why)
}

// reasonOf returns the reason in an error.
func reasonOf(err error) reason.Reason {
	if r, is := errors.AsType[*DryRunRefusal](err); is {
		return r.Why
	}
	return reason.Unread(err.Error())
}

// addRunTime adds the present run, with this many members, to a record.
func (g *known) addRunTime(r *Record, why reason.Reason, members int, w World) {
	r.stop(w.Now(), why, w.Now().Sub(g.startedAt(w.Now())), g.slower(members))
}

// startedAt returns the time from which the present run counts: when the first member was placed
// or, if the record already counts the run up to a later stop, the time of that stop. Members may
// have kept running while the gang was being stopped.
func (g *known) startedAt(now time.Time) time.Time {
	at := now
	for _, a := range g.Members {
		if c := time.Unix(0, a.CreateTime); c.Before(at) {
			at = c
		}
	}
	if g.Record != nil && g.Record.Stopped.After(at) && g.Record.Stopped.Before(now) {
		return g.Record.Stopped
	}
	return at
}

// Detach makes the gang, which is a copy, independent of the original. The copy is read-only and
// must not receive events.
func (g *Lifecycle) Detach() {
	if g.Record != nil {
		r := *g.Record
		g.Record = &r
	}
	if g.stop != nil {
		s := *g.stop
		g.stop = &s
	}
	if g.sizing != nil {
		s := *g.sizing
		g.sizing = &s
	}
	g.Reserved, g.read = slices.Clone(g.Reserved), readings{}
}
