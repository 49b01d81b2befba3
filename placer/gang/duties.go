// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// await is a duty that waits for an answer.
func await(e Effect) ([]Effect, bool) { return []Effect{e}, false }

// nothing is a duty that is not due.
func nothing() ([]Effect, bool) { return nil, true }

// readRecord reads the record of a job that was placed before this placer started. Without
// a record, or with one that cannot be read or is of an earlier start, it begins a new one: pins
// in Nomad count for more than what is written about them.
func (g *Lifecycle) readRecord(w World) ([]Effect, bool) {
	if g.Record != nil || len(g.Pins.Groups) == 0 {
		return nothing()
	}
	if !g.read.hasRecord {
		return await(ReadRecord{})
	}
	r, runs := g.read.record, g.Nomad == Starting || g.Nomad == Running
	doubtful := r == nil || runs && r.JobModifyIndex != *g.Job.JobModifyIndex
	if doubtful && *g.Job.Version > 0 && !g.read.hasVersions {
		return await(ReadVersions{})
	}
	var out []Effect
	if r != nil && r.Note == NoteMoved && w.Now().Sub(r.Decided) < time.Hour { // by an earlier placer
		out = append(out, CountMove{r.Decided})
	}
	switch asked := askedBeforePins(g.Job, g.read.versions); {
	case r == nil, doubtful && g.runAnew(r, asked, w):
		r = &Record{Namespace: g.Key.Namespace, Job: g.Key.ID, Submitted: asked.since}
		r.startsAgain(g.Job)
	case runs && g.startedSince(r): // a stop is written down before the gate comes
		again := *r
		again.startsAgain(g.Job)
		r = &again
	}
	g.Record = r
	g.forgive()
	if ids := r.Pinned(g.Job, g.Pins); ids != nil {
		out = append(out, Own{ids})
	}
	return out, true
}

// runAnew reports whether the record is of an earlier run of the job, which had ended when its author ran
// the job again, or purged it and ran it: not of a gang that he edits while it runs or waits. A member that
// ran then is there still, or has ended since; services end by themselves only when they fail.
func (g *Lifecycle) runAnew(r *Record, asked ask, w World) bool {
	switch {
	case 0 < r.JobModifyIndex && r.JobModifyIndex < *g.Job.CreateIndex: // 0: it was not seen to be whole since it was read back
		return true
	case *g.Job.Type != api.JobTypeBatch, asked.requeued, asked.cut, !asked.since.After(r.Submitted):
		return false
	}
	at := *asked.job.JobModifyIndex
	return !slices.ContainsFunc(w.Allocs(g.Key), func(a *cluster.Alloc) bool {
		return a.CreateIndex < at && (a.Live() || a.ModifyIndex > at)
	})
}

// startedSince reports whether the job's pins are of a later start than the record tells of: the
// placer that made it died before it had written that down. The gang was stopped, then, and all of
// its members are newer than that record; or it has other GPUs.
func (g *Lifecycle) startedSince(r *Record) bool {
	older := func(a *cluster.Alloc) bool { return a.CreateIndex <= r.Index }
	if !r.Stopped.IsZero() && !r.Ready.After(r.Stopped) && len(g.Members) > 0 && !slices.ContainsFunc(g.Members, older) {
		return true
	}
	return g.Pins.Mode == rewrite.ModeGPU && !r.chose(g.Pins)
}

const (
	// saveAfter is how long a decision may go unrecorded while its members come up.
	saveAfter = time.Second
	// retryWithin is how long after a failure a gang is tried again if Nomad calls its job
	// dead: nobody expects one to run that failed hours before a placer came.
	retryWithin = 10 * time.Minute
)

func (g *Lifecycle) saveSlow(w World) ([]Effect, bool) {
	if !g.Unsaved || w.Now().Sub(g.Record.Decided) <= saveAfter {
		return nothing()
	}
	g.Unsaved = false
	return []Effect{SaveRecord{*g.Record}}, true
}

// evaluateAgain is the least time between two evaluations of a job that we ask for.
const evaluateAgain = time.Minute

// keepPending has Nomad evaluate a waiting job again if it calls the job dead. It does so
// with a gated batch job whose members of an older version were drained: nothing of it is
// left, and no evaluation is blocked. Nomad's garbage collection removes dead jobs, and
// the gang would be gone. The gate blocks the new evaluation, so the job is pending again.
func (g *Lifecycle) keepPending(w World) ([]Effect, bool) {
	dead := g.Job.Status != nil && *g.Job.Status == "dead" && !rewrite.Stopped(g.Job)
	if !dead || g.evaluated == *g.Job.ModifyIndex || w.Now().Sub(g.evaluatedAt) < evaluateAgain {
		return nothing()
	}
	return await(Evaluate{})
}

// makeWhole is for a job that is still not whole after the timeout, once Nomad has
// nothing under way for it. Something keeps part of it out: a constraint that was not
// foreseen, a GPU that somebody else took or that became unhealthy, or a node that went
// down. If its members need each other it goes back into the queue as a whole. If not, and its
// pins are to a class, it gets further nodes.
func (g *Lifecycle) makeWhole(w World) ([]Effect, bool) {
	now := w.Now()
	if g.Age(now) < w.ReadyTimeout() {
		return nothing()
	}
	if !g.read.hasEvaluations {
		return await(ReadEvaluations{Limited: true})
	}
	e, _ := Blocked(g.Job, g.read.evaluations)
	why, blocked := g.stuck(w), e != nil
	if es, enough := g.haveEvaluated(why, blocked, w); enough {
		return es, len(es) == 0
	}
	was, stuck := g.Trouble, why
	why = g.incomplete(reason.Incomplete, stuck)
	g.fail(now, why)
	// A batch job that Nomad does not try again has nothing to gain by room.
	if es := g.doWithout(blocked, w); es != nil {
		return append([]Effect{g.log(Info, "goes on without the missing members", "reason", why)}, es...), false
	}
	if rest := g.runsInPart(e); rest != "" {
		if g.Trouble = stuck.And(reason.Reason{Kind: rest}); g.Trouble.Same(was) {
			return nil, false
		}
		return []Effect{g.log(Warn, "members are missing, the others run on", "reason", g.Trouble)}, false
	}
	if g.Pins.Mode == rewrite.ModeClass && g.Have > 0 && (blocked || !g.NeedsAll()) && !g.someOver(e) {
		es, on := g.extend(w)
		if es != nil || on || !g.halfThere(w) {
			return append([]Effect{g.log(Info, "looking for room for the missing members", "reason", why)}, es...), on
		}
		why = why.And(g.Trouble)
	}
	r, said := g.countFailure(w)
	if r == nil || r.GivenUp.IsZero() {
		said = append(said, g.log(Warn, "gang is not whole, requeueing it", "reason", why))
	}
	return append(said, g.stopFor(stopping{why: Requeued}, r, w)...), false
}

// haveEvaluated has Nomad evaluate a job that it does not look at, where that may be all that is
// needed; enough: there is nothing else to do for now. why is what is stuck.
func (g *Lifecycle) haveEvaluated(why reason.Reason, blocked bool, w World) (es []Effect, enough bool) {
	now := w.Now()
	lately := now.Sub(g.evaluatedAt) < evaluateAgain
	if !why.IsZero() && !blocked && *g.Job.Type == api.JobTypeService && !g.read.hasDeployment {
		return []Effect{ReadDeployment{}}, true
	}
	switch {
	case !why.IsZero() && g.read.deploys:
		g.Trouble = g.incomplete(reason.Deploying, why)
		return nil, true
	case !why.IsZero() && g.read.hasDeployment && g.evaluated != *g.Job.ModifyIndex:
		// Nomad forgets a member that fails during a deployment, once that is over (seen on 1.11.3).
		return []Effect{g.log(Info, "a member is missing and Nomad does not look at it, having it evaluated", "reason", why), Evaluate{}}, true
	case !why.IsZero() && g.read.hasDeployment && lately:
		return nil, true // it may yet
	case why.IsZero() && g.unevaluated() && !lately:
		return []Effect{g.log(Info, "Nomad does not look at it, having it evaluated"), Evaluate{}}, true
	case why.IsZero():
		return nil, true
	case !blocked && g.LeftOut && !g.NeedsAll() && g.Have > 0:
		if lately {
			return nil, true
		}
		return []Effect{g.log(Info, "having a member placed again that was stopped"), Evaluate{}}, true
	case *g.Job.Type == api.JobTypeBatch && g.Pins.Mode == rewrite.ModeClass && g.Have > 0 && !g.read.hasAllocs: // what has finished is to be known
		return []Effect{ReadAllocs{}}, true
	}
	return nil, false
}

// unevaluated reports whether Nomad has made no evaluation since the job was registered last. It
// makes none for a child whose parent was purged meanwhile (seen on 1.11.3).
func (g *Lifecycle) unevaluated() bool {
	return !slices.ContainsFunc(g.read.evaluations, func(e *api.Evaluation) bool { return e.CreateIndex >= *g.Job.JobModifyIndex })
}

// incomplete is that members are missing, and why.
func (g *Lifecycle) incomplete(kind reason.Kind, why reason.Reason) reason.Reason {
	return reason.Reason{Kind: kind, Have: g.Have, Want: g.Want}.Over(why)
}

// stuck is why the rest of the job does not come: none if it is not known to be
// stuck, or Nomad has not had its last word. A blocked evaluation from before the last
// registration says nothing about the job as it is now.
func (g *Lifecycle) stuck(w World) reason.Reason {
	e, settled := Blocked(g.Job, g.read.evaluations)
	switch f := w.LastFailure(g.Job); {
	case !settled:
		return reason.Reason{}
	case e != nil && g.preempted(w):
		return reason.Reason{Kind: reason.NomadPreempted}
	case e != nil:
		return refusal(e)
	case f != nil:
		return reason.Reason{Kind: reason.MemberFailed, Cause: f.Reason}
	case g.preempted(w): // of a service whose deployment has failed
		return reason.Reason{Kind: reason.PreemptedOnce}
	case g.CutShort:
		return reason.Reason{Kind: reason.CutShort}
	case g.LeftOut:
		return reason.Reason{Kind: reason.MemberStopped}
	}
	return reason.Reason{}
}

// preempted reports whether Nomad has stopped a member for another job, and none is there in its
// stead.
func (g *Lifecycle) preempted(w World) bool {
	return slices.ContainsFunc(w.Allocs(g.Key), func(a *cluster.Alloc) bool {
		return a.Preempted(g.Job) && !slices.ContainsFunc(g.Members, func(m *cluster.Alloc) bool { return m.Name == a.Name })
	})
}

// refusal is what a blocked evaluation says of the first of its groups by name.
func refusal(e *api.Evaluation) reason.Reason {
	group, why := request.NotPlaced(e.FailedTGAllocs)
	return reason.Reason{Kind: reason.Blocked, Group: group, Cause: why}
}

// disconnectTimeout triggers an evaluation that waits until a member on a node that has lost
// touch with Nomad counts as lost (disconnect): hours, maybe. Nothing else of the job waits for it.
const disconnectTimeout = "max-disconnect-timeout"

// Blocked is the evaluation that is blocked since the job was registered last, nil for none;
// settled: Nomad has had its last word.
func Blocked(job *api.Job, evals []*api.Evaluation) (blocked *api.Evaluation, settled bool) {
	for _, e := range evals {
		switch {
		case e.TriggeredBy == disconnectTimeout:
		case e.Status == api.EvalStatusPending:
			return nil, false
		case e.Status == api.EvalStatusBlocked && e.CreateIndex > *job.JobModifyIndex:
			blocked = e
		}
	}
	return blocked, true
}

// repin registers the job with other pins.
func (g *Lifecycle) repin(why Purpose, pins rewrite.Pins, w World) ([]Effect, bool) {
	job, err := w.Pin(g.Job, pins)
	if err != nil {
		return g.wrong(err, w), false
	}
	return await(Register{Why: why, Job: job})
}

// requeueMisplaced requeues a gang that runs on other GPUs than it was given, once
// that has lasted. A service's members that its deployment has not replaced yet, or not before it failed,
// run on; unless that finds room for no member in its pins: it goes on forever then, as Nomad counts its
// progress_deadline from the first that is placed.
func (g *Lifecycle) requeueMisplaced(w World) ([]Effect, bool) {
	now := w.Now()
	if !g.Misplaced {
		if g.Trouble.Kind == reason.BesidePins {
			g.Trouble = reason.Reason{}
		}
		return nothing()
	}
	if g.Age(now) < w.ReadyTimeout() || now.Before(g.RetryAt) {
		return nil, false
	}
	if *g.Job.Type == api.JobTypeService {
		none := !slices.ContainsFunc(g.Members, func(a *cluster.Alloc) bool { return a.PlacedFor(g.Job) })
		blocked, _ := Blocked(g.Job, g.read.evaluations)
		switch {
		case !g.read.hasDeployment:
			return await(ReadDeployment{})
		case none && !g.read.hasEvaluations:
			return await(ReadEvaluations{})
		case none && blocked != nil: // there is no room for any
		case g.read.deploys || !g.misplacedAnew():
			if g.RetryAt = now.Add(evaluateAgain); g.read.deploys {
				return nil, false
			}
			g.Trouble = reason.Reason{Kind: reason.BesidePins}
			return nothing()
		}
	}
	g.fail(now, reason.Reason{Kind: reason.Misplaced})
	return append([]Effect{g.log(Warn, "gang is misplaced, requeueing it")}, g.stopFor(stopping{why: Requeued}, g.Record, w)...), false
}

// misplacedAnew reports whether a member is misplaced that Nomad has placed for the job as it is.
func (g *Lifecycle) misplacedAnew() bool {
	wanted := gpusPerMember(g.Job)
	return slices.ContainsFunc(g.Members, func(a *cluster.Alloc) bool {
		gp, ok := g.Pins.Of(a.Group)
		return ok && a.PlacedFor(g.Job) && misplaced(a, g.Pins.Mode, gp, wanted[a.Group])
	})
}

// recordReady records once that all members run where they should: not of a gang scaled to none, whose
// last ones still end.
func (g *Lifecycle) recordReady(w World) ([]Effect, bool) {
	r := g.Record
	if r == nil || g.Want == 0 || !r.Ready.IsZero() && r.JobModifyIndex == *g.Job.JobModifyIndex {
		return nothing()
	}
	if g.Request.Elastic != nil && len(w.Holds(g.Key)) > g.Request.Gang.GPUs() {
		return nothing() // some are ending
	}
	if w.Promised(g.Key) {
		return []Effect{Again{}}, true // the view counts what the decision gave out, beside what Nomad chose
	}
	if r.Decision.Gang == "" {
		g.reconstruct(w)
	}
	if g.Pins.Mode != rewrite.ModeGPU || !r.chose(g.Pins) { // Nomad has chosen, or its author has reverted to other pins
		r.Got(w.Describe(g.Request.Gang, w.Running(g.Request, w.Holds(g.Key))))
	}
	if at := g.PlacedAnew(); !r.Ready.IsZero() && !at.IsZero() {
		r.Restarted = at
	}
	r.Ready, r.JobModifyIndex = w.Now(), *g.Job.JobModifyIndex
	g.Tries, g.Trouble, g.Unsaved = 0, reason.Reason{}, false
	return []Effect{SaveRecord{*r}}, true
}

// PlacedAnew is when the first of its members was placed for the job as it is; zero if not all of them were.
func (st Observed) PlacedAnew() (first time.Time) {
	for _, a := range st.Members {
		if !a.PlacedFor(st.Job) {
			return time.Time{}
		}
		if at := time.Unix(0, a.CreateTime); first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// reconstruct makes a record for a gang whose placer died before it wrote one. What it
// chose can be seen in Nomad; why, and what else there was, is lost.
func (g *Lifecycle) reconstruct(w World) {
	m := g.Request.Gang
	g.Record.Mode, g.Record.Decided = g.Pins.Mode, time.Unix(0, *g.Job.SubmitTime)
	g.Record.Decision = pal.Decision{
		Gang: m.ID, Class: m.Class, Policy: w.Policy(), Demand: m.GPUs(), Placed: true,
		Chosen: w.Describe(m, w.Running(g.Request, w.Holds(g.Key))),
	}
	g.Record.Note = NoteReadBack
}
