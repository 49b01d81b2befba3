// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package gang models the life of one job with GPUs as a state machine. It defines the states, the
// events in each state, and the actions that follow.
//
// [Lifecycle.Step] takes an [Event] and returns [Effect]s. Step does no I/O, reads no clock and
// logs nothing. The placer carries out the effects one after another, and delivers each answer as
// an event. While a gang waits for an answer, it does nothing else. The table in table.go lists
// what is due in each state, and what each event does in that state. testdata/table.txt is
// generated from this table. Read state.go first, then table.go, event.go and step.go; each other
// file has the handlers or rules of one subject, for example of stops.
//
// # What must stay true
//
// Nomad is the only source of truth. [Observed] follows from Nomad's objects alone. So if a placer
// crashes between any two effects, the next placer finds the gang in a state from which it can
// continue. The other fields of a [Lifecycle] save requests, or distinguish cases that look the
// same in Nomad. For example, if these fields were missing, a gang that this placer is stopping
// would look like a gang that another placer was stopping when it crashed.
//
// A [Lifecycle] has four layers, and each embeds the next: Lifecycle (steps under way and this
// reconcile's answers), memory (what was done for the job), known (what else was read about the
// job), and [Observed] (the contents of Nomad's objects). A method may change only the layer of its
// receiver and the layers inside it. Give a new method the innermost layer as receiver that has all
// fields that the method changes. No method changes an Observed. Events replace the whole Observed.
// The comment of [Observed] names the one exception.
//
// [World] tells a gang about the rest of the placer in this cycle. The methods of World change
// nothing and make no requests. Package model implements World. If a handler needs something new
// from the model, add a method to [World], to package model and to fakeWorld (world_test.go).
//
// A step returns at most one effect that has an answer, and this effect comes last. The gang gets
// the answer before any other event. After an answer the duties begin again with the first one, so
// each duty must find out by itself what was already read or done.
//
// # To add a state
//
//   - Declare the state in state.go, and add it to [palapi.States] and to meanings.
//   - If Nomad's objects alone show the state, derive the state in [Observed.state], and name it in
//     the comment of Observed.Nomad. Otherwise derive the state in [Lifecycle.State]. [palapi.State.Ours]
//     decides whether the placer acts in the state.
//   - In table.go, list the duties of the state. (Every state for which [palapi.State.Ours] is true has
//     duties, except Unschedulable, which the machine treats as Waiting.) Add handlers to the
//     variable own if they differ from the handlers in the variable elsewhere. Add the state to the
//     field "to" of each duty and handler that leads to the state.
//   - Decide in [Lifecycle.Quiet] whether a gang in this state needs attention in each cycle, and
//     in memory.Unsettled whether something becomes due in this state without an event.
//   - Adapt the code that reads states: events (placer/events.go), counts (package model),
//     metrics and page (placer/agent), explain (placer/query) and the commands
//     (placer/cmd/nomad-pal). A search for gang.Completing finds most of this code. The page and
//     the API schema contain the names of states as text.
//
// # To add an event
//
//   - Declare the type in event.go, with its method event.
//   - If the event is an answer, its method returns [OnAnswer], and [Lifecycle.answer] handles the
//     event in all states.
//   - If the event is not an answer, give it its own [Kind], and add the Kind to kinds in
//     table_test.go. Add an entry to elsewhere, because all states must handle the event, and
//     entries to own.
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
//   - The compiler does not notice if the placer has no case for an effect. The placer would do
//     nothing, and would still answer [Done]. TestEveryEffectIsCarriedOut in package placer finds
//     such an effect.
//   - Describe the effect in the function told (stories_test.go), and answer it in random_test.go.
//     Add what must always hold to the function check in random_test.go.
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
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Lifecycle is the life of one job with GPUs. [Lifecycle.Step] changes a Lifecycle. Only package
// model and the placer may set fields from outside: Control, Refused, Queued, Placed, Target, the
// Observed of an isolated job, and the Job of a submitted job after its registration. Package query
// changes only copies.
type Lifecycle struct {
	memory

	// asks is true after this reconcile has found that the author requests other GPUs (see
	// [Lifecycle.Asks]). runs is the job version that the members of a resubmitted gang run.
	asks bool
	runs runs

	stop *stopping

	// read holds the answers to this reconcile's effects. pending is the effect that waits for an
	// answer.
	read    readings
	pending Effect
}

// Of creates the Lifecycle of a job from Nomad's objects.
func Of(o Observed) Lifecycle { return Lifecycle{memory: memory{known: known{Observed: o}}} }

// Edited returns the lifecycle of a waiting gang as it would be if the gang's author registered the
// job o.Job now. The gang keeps its place in the queue if it requests no more GPUs.
func (g *known) Edited(o Observed) Lifecycle {
	as := known{Observed: o}
	if g.GaveUp().IsZero() && rewrite.AllGPUs(o.Job) <= rewrite.AllGPUs(g.Job) {
		as.position = position{index: *o.Job.JobModifyIndex, since: g.Submitted(), record: g.ran()}
	}
	return Lifecycle{memory: memory{known: as}}
}

// known holds data about the job from Nomad, from people and from the placer's records.
type known struct {
	// Control holds the orders that people gave about the job.
	Control Control
	Observed
	// Request is what the job requests. Refused is the error that says why the placer cannot serve
	// the job, or nil.
	Request request.Request
	Refused error
	// Record is the last decision on the job, or nil if that decision is not known yet. Unsaved is
	// true while Record is not stored. The placer stores Record when all members run, or after
	// saveAfter.
	Record  *Record
	Unsaved bool
	// Since is the time when the placer first saw the present version.
	Since time.Time

	// Target holds the GPUs on which a moving gang starts again after its stop. Target is nil if
	// the gang does not move.
	Target   *pal.Placement
	position position

	// eligible is the time when the gang's wait for pal_after and pal_begin ended, or zero if the
	// gang has neither hint.
	eligible time.Time
}

// memory contains known, and what the placer has done for the job.
type memory struct {
	known

	// Queued is true if the gang is in the queue, either as a waiting or as a running gang. Placed
	// is true if the gang is in the queue as a running gang.
	Queued, Placed bool
	// Reserved holds the ids of the GPUs that a decision reserves for the gang. Allocations or pins
	// may already hold some of the reserved GPUs.
	Reserved []string

	// Tries counts failures since the last success. After a failure, the placer tries nothing
	// before RetryAt. trouble is the reason of the last failure. It is a pointer that is nil for
	// most gangs, so that a snapshot, which copies every gang, stays small.
	Tries   int
	RetryAt time.Time
	trouble *reason.Reason
	// Never is the reason why Nomad cannot place the gang on any node. The placer tries the gang
	// again only when this reason may have changed.
	Never *Never
	// stumbled is the type of the effect that failed last, if trouble describes this failure.
	stumbled string

	// edited is set if the queue still has the gang's earlier request or priority, for example
	// after an edit by the author.
	edited bool
	// assumed is the job as the placer last registered it, until Nomad shows the result. overwrote:
	// this registration replaced a change that the placer had not seen. recreated: it created a
	// purged job again.
	assumed              *api.Job
	overwrote, recreated bool

	// lineage holds the versions of the job that differ from one another only by the placer's gate
	// and pins. notFinished is the last check that found the gang unfinished in these versions.
	lineage     lineage
	notFinished finishCheck

	// evaluated is the job's ModifyIndex when the placer last asked Nomad to evaluate the job
	// again. evaluatedAt is the time of this request.
	evaluated   uint64
	evaluatedAt time.Time
}

// readings are answers from Nomad that are valid only during one reconcile.
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
	room                                   *Room // room for the new size; a pointer because a Room is large
}

// Age returns how long the placer has known the present version. Age uses the placer's clock,
// because the clocks of Nomad's servers may differ.
func (g *known) Age(now time.Time) time.Duration { return now.Sub(g.Since) }

// Ours reports whether the placer has something to do for the job, or to remember about it. Even an
// ended job is ours if the placer overwrote a change by the author.
func (g *memory) Ours() bool { return g.Observed.Ours() || g.Nomad == palapi.Ended && g.overwrote }

// Overwrote reports whether the placer's registration replaced a change that the placer had not
// seen. The placer must undo an overwriting registration before it decides anything else about the
// job.
func (g *memory) Overwrote() bool { return g.overwrote }

// MayHaveOverwritten reports whether the placer's last registration replaced a change that the
// placer had not seen. MayHaveOverwritten also returns true until Nomad has shown the result. While
// MayHaveOverwritten returns true, the placer must not register the job for any other purpose.
// After two registrations in a row, nobody could tell which registration replaced the author's
// change.
func (g *memory) MayHaveOverwritten() bool { return g.unverified() || g.overwrote }

// unverified reports whether Nomad has not yet shown the result of the placer's last registration.
func (g *memory) unverified() bool { return g.assumed != nil && g.assumed == g.Job }

// verifyLater remembers the job that the placer has registered, until an event shows which job
// Nomad has stored.
func (g *memory) verifyLater(job *api.Job) {
	g.assumed = job
	if *job.JobModifyIndex == *g.Job.JobModifyIndex { // nothing changed, so no event will come
		g.assumed = nil
	}
}

// PastKnown reports whether the placer knows the gang's place in the queue. The placer learns the
// place from the records of earlier placers and from the job's earlier versions.
func (g *memory) PastKnown() bool {
	if len(g.Pins.Groups) > 0 {
		return g.Record != nil && g.positionKnown()
	}
	return g.Nomad != palapi.Waiting || g.position.index == *g.Job.JobModifyIndex || first(g.Job) // a first version has no past
}

// Quiet reports whether the gang needs no attention before its next event. Most gangs are quiet
// most of the time. A running gang is quiet if it runs on its GPUs, is in the queue as a running
// gang, and has a written record. A waiting gang is quiet if the queue has its present request.
func (g *Lifecycle) Quiet(b Book) bool {
	if g.Nomad == palapi.Waiting {
		return g.Queued && !g.Placed && !g.edited && g.Refused == nil && g.Target == nil && g.stop == nil && g.stumbled == "" &&
			len(b.Unanswered(g.Job)) == 0 && !g.MayHaveOverwritten() && g.PastKnown() && !cluster.Dead(g.Job) && g.eligible.IsZero()
	}
	return g.Nomad == palapi.Running && g.Control.Release == nil && !g.Misplaced && !g.LeftOutBeside && g.Queued && g.Placed && g.Target == nil && !g.overwrote &&
		g.stumbled == "" && g.Record != nil && g.Record.Doubt == (Doubt{}) && !g.Unsaved && !g.Record.Ready.IsZero() && g.Record.JobModifyIndex == *g.Job.JobModifyIndex
}

// Unsettled reports whether something can become due without an event, merely because time passes.
func (g *memory) Unsettled() bool {
	switch g.Nomad {
	case palapi.Starting, palapi.Stopping, palapi.Waiting:
		return true
	case palapi.Lost:
		return g.GaveUp().IsZero()
	case palapi.Resubmitted:
		return g.Tries > 0 // a failed step is tried again
	case palapi.Running:
		return g.stumbled != "" || g.Control.Release != nil || g.LeftOutBeside
	}
	return false
}

// Trouble returns the reason of the last failure, or zero if there is none.
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

// reasonOf extracts the reason from an error.
func reasonOf(err error) reason.Reason {
	r, is := errors.AsType[*DryRunRefusal](err)
	if is {
		return r.Why
	}
	return reason.Unread(err.Error())
}

// addRunTime adds the present run of the gang to a record. members is the number of members in the
// present run.
func (g *known) addRunTime(r *Record, why reason.Reason, members int, w World) {
	r.stop(w.Now(), why, w.Now().Sub(g.startedAt(w.Now())), g.slower(members))
}

// startedAt returns the time from which the present run counts. The present run begins when the
// first member is placed. If the record already counts a part of the run, startedAt returns the end
// of that part. A record counts a part of a run if members kept running while the gang was being
// stopped.
func (g *known) startedAt(now time.Time) time.Time {
	at := now
	for _, a := range g.Members {
		c := time.Unix(0, a.CreateTime)
		if c.Before(at) {
			at = c
		}
	}
	if g.Record != nil && g.Record.Stopped.After(at) && g.Record.Stopped.Before(now) {
		return g.Record.Stopped
	}
	return at
}

// endedRun returns when a run began and ended whose members have all ended by themselves or with
// their nodes. If the record already counts a part of the run, the run begins at the end of that
// part. If Nomad has placed no member, both times are zero.
func (g *known) endedRun(w World) (began, ended time.Time) {
	for _, a := range w.Allocs(g.Key) {
		if !a.PlacedFor(g.Job) {
			continue
		}
		at := time.Unix(0, a.CreateTime)
		if began.IsZero() || at.Before(began) {
			began = at
		}
		at = time.Unix(0, a.ModifyTime)
		if at.After(ended) {
			ended = at
		}
	}
	r := g.Record
	if r != nil && r.Stopped.After(began) {
		began = r.Stopped
	}
	return began, ended
}

// Detach makes a copied gang independent of the original gang. The copy is read-only and must not
// receive events.
func (g *Lifecycle) Detach() {
	if g.Record != nil {
		r := *g.Record
		g.Record = &r
	}
	if g.stop != nil {
		s := *g.stop
		g.stop = &s
	}
	g.Reserved, g.read = slices.Clone(g.Reserved), readings{}
}
