// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package gang is the life of one job with GPUs as a state machine: its states, what may
// happen in each, and what is then to be done.
//
// [Lifecycle.Step] takes an [Event] and returns [Effect]s. It does no I/O, reads no clock
// and logs nothing. The placer carries the effects out, one after another, and hands
// each answer back as an event; a gang that waits for an answer does nothing else.
// What is due in which state, and what each event does there, is the table in
// table.go; docs/design/gang-states.md is made from it.
//
// Nomad is the only truth. [Observed] follows from Nomad's objects alone, so that a
// placer that dies between any two effects finds the gang in a state from which it
// goes on. What a [Lifecycle] remembers besides saves requests, or tells apart what looks
// the same in Nomad: a gang that is stopped for another one looks like one whose
// placer died while it did so.
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

// Lifecycle is the life of one job with GPUs. [Lifecycle.Step] changes it; others read it.
type Lifecycle struct {
	// Control is what people told about the job.
	Control Control
	Observed
	// Request is what the job wants, Refused why it cannot be served.
	Request request.Request
	Refused error
	// Record is the last decision, nil while it is not known. Unsaved: it is to be
	// written when the members are seen.
	Record  *Record
	Unsaved bool
	// Since is when the job was first seen as it is.
	Since time.Time

	// Queued: the queue knows it. Placed: as one that runs.
	Queued, Placed bool
	// Held are the ids of GPUs given out that no allocation and no pin holds yet.
	Held []string

	// Tries counts failures since the last success; nothing else is tried
	// before RetryAt. Trouble is what happened last, for people.
	Tries   int
	RetryAt time.Time
	Trouble reason.Reason
	// Never is what keeps it from every node, as Nomad says: it is not tried before that may be over.
	Never *Never
	// stumbled is the kind of effect that failed, and that Trouble is about.
	stumbled string

	// asks: see [Lifecycle.Asks]. runs is what it runs meanwhile.
	asks bool
	runs runs

	// Target is where it goes when it has stopped, nil if it is not moved.
	Target *pal.Placement
	stop   *stopping

	// sizing is the change of an elastic gang's number of members that is under way.
	sizing *sizing

	// unanswered: starts of the job as it is were sent whose outcomes are not known. One of them
	// came about at most.
	unanswered bool
	// edited: its author changed it while it was queued, and the queue does not know.
	edited bool
	// assumed is the job as we registered it last, until Nomad tells what it made of it;
	// overwrote: that replaced a change that we had not seen; recreated: it made a new
	// job, since the one that was meant had been purged; lookedBack: whether an earlier
	// placer did so is known.
	assumed                          *api.Job
	overwrote, recreated, lookedBack bool
	position                         position

	// lineage is which versions are our rewritings of one another; notFinished was asked
	// last of whether the gang finished in one of them.
	lineage     lineage
	notFinished finishCheck

	// The following are JobModifyIndexes of the job as it was when something became
	// known of it: its canaries lack room; they do not.
	canariesLack, canariesDone uint64

	// evaluated is the ModifyIndex of the job when Nomad was asked to evaluate it again,
	// which was at evaluatedAt.
	evaluated   uint64
	evaluatedAt time.Time

	// eligible is when the last of the jobs that it comes after had finished; zero: it
	// comes after none.
	eligible time.Time

	// read is what was read in this reconcile, pending the effect whose answer is due.
	read    readings
	pending Effect
}

// readings are answers of Nomad's that hold for one reconcile.
type readings struct {
	Reconcile
	versions    map[uint64]*api.Job
	allocs      []*cluster.Alloc
	evaluations []*api.Evaluation

	deploys bool // a deployment of the job goes on

	hasVersions, hasAllocs, hasEvaluations bool
	hasDeployment                          bool
	hasRecord                              bool
	record                                 *Record
	room                                   Room // for its new size, or for what it lacks
}

// Age is how long the placer has known the job as it is: by its own clock, which
// need not agree with the servers'.
func (g *Lifecycle) Age(now time.Time) time.Duration { return now.Sub(g.Since) }

// Ours reports whether there is something for the placer to do, or to remember, about the
// job. A job that has ended is ours too, if we overwrote a change of its author's.
func (g *Lifecycle) Ours() bool { return g.Observed.Ours() || g.Nomad == Ended && g.overwrote }

// Overwrote reports whether what we registered replaced a change that we had not seen. That
// is to be undone before anything is decided about the job.
func (g *Lifecycle) Overwrote() bool { return g.overwrote }

// MayHaveOverwritten reports whether what we registered last has replaced a change that we had not
// seen, or Nomad has not told yet. Until that is known, and undone, nothing else is registered over
// the job: of two registrations, one upon the other, nobody could tell which of them replaced what
// the author did.
func (g *Lifecycle) MayHaveOverwritten() bool { return g.unverified() || g.overwrote }

// unverified is the same without what is known to have replaced a change.
func (g *Lifecycle) unverified() bool { return g.assumed != nil && g.assumed == g.Job }

// verifyLater remembers the job as Nomad should have it after a registration, until an
// event shows it as it is.
func (g *Lifecycle) verifyLater(job *api.Job) {
	if g.assumed = job; *job.JobModifyIndex == *g.Job.JobModifyIndex { // there was nothing to change: no event will tell
		g.assumed = nil
	}
}

// PastKnown reports whether the gang's place in the queue is known, and that nothing of its
// author's was overwritten: what an earlier placer, or an earlier version of the job, says
// about that has been read.
func (g *Lifecycle) PastKnown() bool {
	if len(g.Pins.Groups) > 0 {
		return g.Record != nil && g.positionKnown() && !g.mustLookBack()
	}
	return g.Nomad != Waiting || g.position.index == *g.Job.JobModifyIndex || first(g.Job) // there is nothing before it
}

// Quiet reports whether the gang needs no look until something happens to it or changes in
// Nomad, as most gangs at most times: it runs as it should, the queue knows, and it is
// written down; or it waits, and the queue knows all that it asks for.
func (g *Lifecycle) Quiet() bool {
	if g.Nomad == Waiting {
		dead := g.Job.Status != nil && *g.Job.Status == "dead"
		return g.Queued && !g.Placed && !g.edited && g.Refused == nil && g.Target == nil && g.stop == nil && g.stumbled == "" &&
			!g.unanswered && !g.MayHaveOverwritten() && g.PastKnown() && !dead && g.eligible.IsZero()
	}
	return g.Nomad == Running && !g.Misplaced && !g.LeftOutBeside && g.Queued && g.Placed && g.Target == nil && !g.overwrote &&
		g.stumbled == "" && g.Record != nil && !g.Unsaved && !g.Record.Ready.IsZero() && g.Record.JobModifyIndex == *g.Job.JobModifyIndex &&
		(g.canariesDone == *g.Job.JobModifyIndex || !WantsCanaries(g.Observed))
}

// Unsettled reports whether something may become due for it without an event.
func (g *Lifecycle) Unsettled() bool {
	switch g.Nomad {
	case Starting, Stopping, Waiting:
		return true
	case Lost:
		return g.GaveUp().IsZero()
	case Resubmitted:
		return g.Tries > 0 // what failed is tried again
	case Running:
		return g.stumbled != "" || g.LeftOutBeside || g.canariesDone != *g.Job.JobModifyIndex && WantsCanaries(g.Observed)
	}
	return false
}

// fail makes the gang wait before it is tried again: 2 s, 4 s, … 5 min.
func (g *Lifecycle) fail(now time.Time, why reason.Reason) {
	g.Tries++
	g.RetryAt = now.Add(min(time.Second<<min(g.Tries, 10), 5*time.Minute))
	g.Trouble = why
}

// reasonOf is why something failed.
func reasonOf(err error) reason.Reason {
	if r, is := errors.AsType[*DryRunRefusal](err); is {
		return r.Why
	}
	return reason.Unread(err.Error())
}

// addRunTime takes into a record what the gang has run by now, with so many members.
func (g *Lifecycle) addRunTime(r *Record, why reason.Reason, members int, w World) {
	r.stop(w.Now(), why, w.Now().Sub(g.startedAt(w.Now())), g.slower(members))
}

// startedAt is since when the job's members run, as far as its record does not count that
// already: they may have run on when the gang was to be stopped.
func (g *Lifecycle) startedAt(now time.Time) time.Time {
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

// Clone is the gang as it is now, whatever becomes of this one. It is to be asked, not to go on.
func (g *Lifecycle) Clone() Lifecycle {
	c := *g
	if g.Record != nil {
		r := *g.Record
		c.Record = &r
	}
	if g.stop != nil {
		s := *g.stop
		c.stop = &s
	}
	if g.sizing != nil {
		s := *g.sizing
		c.sizing = &s
	}
	c.Held, c.read = slices.Clone(g.Held), readings{}
	return c
}
