// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
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

// await returns the result of a duty that must wait for the answer to the effect e. After the
// answer, the gang goes through its duties again.
func await(e Effect) ([]Effect, bool) { return []Effect{e}, false }

// nothing returns the result of a duty if there is nothing to do.
func nothing() ([]Effect, bool) { return nil, true }

// readRecord reads the record of a job that was placed before this placer started. readRecord
// starts a new record if the job has none, or if the old record cannot be read or belongs to an
// earlier start. If the record and the pins in Nomad contradict each other, readRecord trusts the
// pins.
func (g *Lifecycle) readRecord(w World) ([]Effect, bool) {
	if g.Record != nil || len(g.Pins.Groups) == 0 {
		return nothing()
	}
	if !g.read.hasRecord {
		return await(ReadRecord{})
	}
	r, runs := g.read.record, g.Nomad == palapi.Starting || g.Nomad == palapi.Running
	doubtful := r == nil || runs && r.JobModifyIndex != *g.Job.JobModifyIndex
	if doubtful && *g.Job.Version > 0 && !g.read.hasVersions {
		return await(ReadVersions{})
	}
	var out []Effect
	asked := askedBeforePins(g.Job, g.read.versions)
	switch {
	case r == nil, doubtful && g.runAgain(r, asked, w):
		r = &Record{Namespace: g.Key.Namespace, Job: g.Key.ID, Submitted: asked.since}
		r.startsAgain(g.Job)
	case runs && g.startedSince(r): // the record of a stop is written before the gate is registered, so a running gang can have such a record
		again := *r
		again.startsAgain(g.Job)
		r = &again
	}
	g.Record = r
	g.forgive()
	ids := r.Pinned(g.Job, g.Pins)
	if ids != nil {
		out = append(out, Own{ids})
	}
	return out, true
}

// runAgain reports whether the author has started the job again since the run that the record
// describes. The earlier run must have ended before the author registered the job again, unless the
// author purged the job after the run. An edit of a running or waiting gang is not a new run,
// because allocations from before the edit are still live, or ended after the edit. A service ends
// by itself only when it fails. So registering a service again is always an edit, never a new run.
func (g *Observed) runAgain(r *Record, asked ask, w World) bool {
	switch {
	case 0 < r.JobModifyIndex && r.JobModifyIndex < *g.Job.CreateIndex: // 0: readRecord started this record, and the gang has not been complete since
		return true
	case *g.Job.Type != api.JobTypeBatch, asked.requeued, asked.cut, !asked.since.After(r.Submitted):
		return false
	}
	at := *asked.job.JobModifyIndex
	return !slices.ContainsFunc(w.Allocs(g.Key), func(a *cluster.Alloc) bool {
		return a.CreateIndex < at && (a.Live() || a.ModifyIndex > at)
	})
}

// startedSince reports whether the job's pins are newer than the record: the placer crashed between
// the two writes. Either the pins and the record name different GPUs, or the gang had been stopped
// and all its members are newer than the record.
func (g *Observed) startedSince(r *Record) bool {
	older := func(a *cluster.Alloc) bool { return a.CreateIndex <= r.Index }
	if !r.Stopped.IsZero() && !r.Ready.After(r.Stopped) && len(g.Members) > 0 && !slices.ContainsFunc(g.Members, older) {
		return true
	}
	return g.Pins.Mode == rewrite.ModeGPU && !r.chose(g.Pins)
}

const (
	// saveAfter is how long the placer waits before it writes the decision on a gang whose members
	// are still starting.
	saveAfter = time.Second
	// retryWithin is the maximum time between a gang's failure and its next try if Nomad calls the
	// job dead. So a placer that has just started does not retry a job that failed hours ago.
	retryWithin = 10 * time.Minute
)

func (g *known) saveSlow(w World) ([]Effect, bool) {
	if !g.Unsaved || w.Now().Sub(g.Record.Decided) <= saveAfter {
		return nothing()
	}
	g.Unsaved = false
	return []Effect{SaveRecord{*g.Record}}, true
}

// evaluateAgain is the minimum time between two requests of the placer to evaluate the same job.
const evaluateAgain = time.Minute

// keepPending asks Nomad to evaluate a waiting job that Nomad calls dead. Nomad calls a gated batch
// job dead when members of an older version were drained, because the job then has no allocations
// left and no blocked evaluation. Garbage collection would delete the job. The gate blocks the
// evaluation that the placer requests, so Nomad calls the job pending again.
func (g *memory) keepPending(w World) ([]Effect, bool) {
	if !cluster.Dead(g.Job) || rewrite.Stopped(g.Job) || g.evaluated == *g.Job.ModifyIndex || w.Now().Sub(g.evaluatedAt) < evaluateAgain {
		return nothing()
	}
	return await(Evaluate{})
}

// requeueIncomplete acts on a job that is still incomplete after the ready timeout, if Nomad does not
// try to start the missing members. The cause may be an unforeseen constraint, a GPU that somebody
// else took or that became unhealthy, or a node that went down. requeueIncomplete requeues the whole
// gang, except in three cases: an elastic gang continues with fewer members, the members do not need
// each other, or the gang has pins to a class and lacks only members that its author has added.
func (g *Lifecycle) requeueIncomplete(w World) ([]Effect, bool) {
	now := w.Now()
	if g.Age(now) < w.ReadyTimeout() {
		return nothing()
	}
	if !g.NeedsAll() {
		g.Reserved = nil // Nomad may place the missing members elsewhere, or never
	}
	if !g.read.hasEvaluations {
		return await(ReadEvaluations{Limited: true})
	}
	e, _ := Blocked(g.Job, g.read.evaluations)
	why, blocked := g.stuck(w), e != nil
	es, enough := g.haveEvaluated(why, blocked, w)
	if enough {
		return es, len(es) == 0
	}
	was, stuck := g.Trouble(), why
	why = g.incomplete(reason.Incomplete, stuck)
	g.fail(now, why)
	rest := g.leftToNomad()
	if rest != "" {
		if g.SetTrouble(stuck.And(reason.Reason{Kind: rest})); g.Trouble().Same(was) {
			return nil, false
		}
		return []Effect{g.log(Warn, "members are missing; leaving them to Nomad", "reason", g.Trouble())}, false
	}
	if g.Pins.Mode == rewrite.ModeClass && blocked && g.lacksOnlyAdded() {
		return nil, false
	}
	r, said := g.countFailure(w)
	if r == nil || r.GivenUp.IsZero() {
		said = append(said, g.log(Warn, "the gang is incomplete: requeueing the gang", "reason", why))
	}
	return append(said, g.stopFor(stopping{why: Requeued, drained: lostMembers(g.Job, w)}, r, w)...), false
}

// haveEvaluated asks Nomad to evaluate the job if Nomad has stopped evaluating it. why is the
// reason that the missing members do not start. enough is true if requeueIncomplete has nothing
// else to do for now.
func (g *Lifecycle) haveEvaluated(why reason.Reason, blocked bool, w World) (es []Effect, enough bool) {
	now := w.Now()
	lately := now.Sub(g.evaluatedAt) < evaluateAgain
	if !why.IsZero() && !blocked && *g.Job.Type == api.JobTypeService && !g.read.hasDeployment {
		return []Effect{ReadDeployment{}}, true
	}
	switch {
	case !why.IsZero() && g.read.deploys:
		g.SetTrouble(g.incomplete(reason.Deploying, why))
		return nil, true
	case !why.IsZero() && g.read.hasDeployment && g.evaluated != *g.Job.ModifyIndex:
		// If a member fails during a deployment, Nomad forgets the member when the deployment ends
		// (seen on 1.11.3).
		return []Effect{g.log(Info, "a member is missing and Nomad does not evaluate the job; asking Nomad to evaluate it", "reason", why), Evaluate{}}, true
	case !why.IsZero() && g.read.hasDeployment && lately:
		return nil, true // Nomad may still evaluate the job
	case why.IsZero() && g.read.unevaluated(g.Job) && !lately:
		return []Effect{g.log(Info, "Nomad does not evaluate the job; asking Nomad to evaluate it"), Evaluate{}}, true
	case why.IsZero():
		return nil, true
	case !blocked && g.LeftOut && !g.NeedsAll() && g.Have > 0:
		if lately {
			return nil, true
		}
		return []Effect{g.log(Info, "asking Nomad to place a stopped member again"), Evaluate{}}, true
	}
	return nil, false
}

// unevaluated reports whether Nomad has made no evaluation since the job's last registration. Nomad
// makes no evaluation for a dispatched or periodic job whose parent was purged (seen on 1.11.3).
func (r *readings) unevaluated(job *api.Job) bool {
	return !slices.ContainsFunc(r.evaluations, func(e *api.Evaluation) bool { return e.CreateIndex >= *job.JobModifyIndex })
}

// incomplete returns a reason that says how many members the gang has and needs, and why members
// are missing.
func (g *Observed) incomplete(kind reason.Kind, why reason.Reason) reason.Reason {
	return reason.Reason{Kind: kind, Have: g.Have, Want: g.Want}.Over(why)
}

// stuck returns the reason why the missing members do not start. stuck returns no reason if the
// missing members can still start, or if Nomad has not finished evaluating. stuck ignores a blocked
// evaluation from before the last registration.
func (g *Lifecycle) stuck(w World) reason.Reason {
	e, settled := Blocked(g.Job, g.read.evaluations)
	f := w.LastFailure(g.Job)
	switch {
	case !settled:
		return reason.Reason{}
	case e != nil && g.preemptedByNomad(w):
		return reason.Reason{Kind: reason.NomadPreempted}
	case e != nil && f != nil: // Nomad needs room only because the member failed
		return reason.Reason{Kind: reason.MemberLost, Node: f.Node, Cause: f.Reason}.And(Refusal(e))
	case e != nil:
		return Refusal(e)
	case f != nil:
		return reason.Reason{Kind: reason.MemberFailed, Cause: f.Reason}
	case g.preemptedByNomad(w): // without a blocked evaluation, Nomad does not replace the member
		return reason.Reason{Kind: reason.PreemptedOnce}
	case g.CutShort:
		return reason.Reason{Kind: reason.CutShort}
	case g.LeftOut:
		return reason.Reason{Kind: reason.MemberStopped}
	}
	return reason.Reason{}
}

// preemptedByNomad reports whether Nomad has stopped a member for another job and has not replaced
// it.
func (g *Observed) preemptedByNomad(w World) bool {
	return slices.ContainsFunc(w.Allocs(g.Key), func(a *cluster.Alloc) bool {
		return a.PreemptedByNomad(g.Job) && !slices.ContainsFunc(g.Members, func(m *cluster.Alloc) bool { return m.Name == a.Name })
	})
}

// Refusal returns why Nomad cannot place the alphabetically first group of a blocked evaluation.
func Refusal(e *api.Evaluation) reason.Reason {
	group, why := request.NotPlaced(e.FailedTGAllocs)
	return reason.Reason{Kind: reason.Blocked, Group: group, Cause: why}
}

// disconnectTimeout is the trigger of an evaluation that waits until Nomad counts a member on a
// disconnected node as lost. This wait can take hours, but it does not delay anything else in the
// job.
const disconnectTimeout = "max-disconnect-timeout"

// Blocked returns the blocked evaluation of the job's last registration, or nil if there is none.
// settled reports whether Nomad has finished evaluating.
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

// repin registers the job with different pins.
func (g *Lifecycle) repin(why Purpose, pins rewrite.Pins, w World) ([]Effect, bool) {
	job, err := w.Pin(g.Job, pins)
	if err != nil {
		return g.wrong(err, w), false
	}
	return await(Register{Why: why, Job: job})
}

// requeueMisplaced requeues a gang that has run for some time on GPUs that the placer did not
// choose. requeueMisplaced does not requeue a service whose old members still run because a
// deployment is active or has failed. The exception is a deployment that finds no room for any
// member within the pins. A deployment without room never ends, because Nomad counts
// progress_deadline from the first placed member.
func (g *Lifecycle) requeueMisplaced(w World) ([]Effect, bool) {
	now := w.Now()
	if !g.Misplaced {
		if g.Trouble().Kind == reason.BesidePins {
			g.trouble = nil
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
		case none && blocked != nil: // the deployment finds no room for any member
		case g.read.deploys || !g.misplacedAgain():
			g.RetryAt = now.Add(evaluateAgain)
			if g.read.deploys {
				return nil, false
			}
			g.SetTrouble(reason.Reason{Kind: reason.BesidePins})
			return nothing()
		}
	}
	g.fail(now, reason.Reason{Kind: reason.Misplaced})
	return append([]Effect{g.log(Warn, "the gang runs outside its pins: requeueing the gang")}, g.stopFor(stopping{why: Requeued}, g.Record, w)...), false
}

// misplacedAgain reports whether a member of the present version still runs on GPUs that the placer
// did not choose.
func (g *Observed) misplacedAgain() bool {
	wanted := gpusPerMember(g.Job)
	return slices.ContainsFunc(g.Members, func(a *cluster.Alloc) bool {
		gp, ok := g.Pins.Of(a.Group)
		return ok && a.PlacedFor(g.Job) && misplaced(a, g.Pins.Mode, gp, wanted[a.Group])
	})
}

// recordReady records that all members run on their GPUs. recordReady does so once for each version
// of the job. recordReady skips a gang that is scaled to zero, because its last members are still
// ending.
func (g *memory) recordReady(w World) ([]Effect, bool) {
	r := g.Record
	if r == nil || g.Want == 0 || !r.Ready.IsZero() && r.JobModifyIndex == *g.Job.JobModifyIndex {
		return nothing()
	}
	if g.Request.Elastic != nil && len(w.Holds(g.Key)) > g.Request.Gang.GPUs() {
		return nothing() // some members are still ending
	}
	if w.Reserved(g.Key) {
		return []Effect{Again{}}, true // the view still counts both the decision's GPUs and the GPUs that Nomad chose
	}
	if r.Decision.Gang == "" {
		g.reconstruct(w)
	}
	if g.Pins.Mode != rewrite.ModeGPU || !r.chose(g.Pins) { // Nomad chose the GPUs, or the author reverted to other pins
		r.Got(w.Describe(g.Request.Gang, w.Running(g.Request, w.Holds(g.Key))))
	}
	at := g.PlacedAgain()
	if !r.Ready.IsZero() && !at.IsZero() {
		r.Restarted = at
	}
	r.Ready, r.JobModifyIndex = w.Now(), *g.Job.JobModifyIndex
	g.Tries = 0
	g.trouble = nil
	g.Unsaved = false
	return []Effect{SaveRecord{*r}}, true
}

// PlacedAgain returns the time when the first member of the present version was placed. PlacedAgain
// returns zero if there are no members, or if some members were placed for an earlier version.
func (st Observed) PlacedAgain() (first time.Time) {
	for _, a := range st.Members {
		if !a.PlacedFor(st.Job) {
			return time.Time{}
		}
		at := time.Unix(0, a.CreateTime)
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// reconstruct makes a record for a gang if the placer that started the gang crashed before writing
// the record. Nomad shows which GPUs were chosen, but the reasons and the alternatives are lost.
func (g *known) reconstruct(w World) {
	m := g.Request.Gang
	g.Record.Mode, g.Record.Decided = g.Pins.Mode, time.Unix(0, *g.Job.SubmitTime)
	g.Record.Decision = pal.Decision{
		Gang: m.ID, Class: m.Class, Policy: w.Policy(), Demand: m.GPUs(), Placed: true,
		Chosen: w.Describe(m, w.Running(g.Request, w.Holds(g.Key))),
	}
	g.Record.Note = NoteReadBack
}
