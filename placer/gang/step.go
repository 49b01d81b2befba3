// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Step handles an event and returns the effects that the placer must carry out, in this order. If a
// step returns an effect on Nomad, that effect comes last, and its answer is the next event.
//
// The caller must carry out every effect, and must deliver the events of one gang one after
// another. The caller must deliver the answer to an effect before any other event. If the placer
// crashes between two steps, the next placer starts from Nomad's objects and empty [Lifecycle]s.
func (g *Lifecycle) Step(e Event, w World) []Effect {
	var todo []Effect
	switch {
	case e.event() == OnAnswer:
		of := g.pending
		g.pending = nil
		todo = g.answer(e, of, w)
	case g.Job == nil:
		todo = g.observe(e, w)
	default:
		todo = handlerOf(g.State(w), e.event()).do(g, e, w)
	}
	n := len(todo)
	if n > 0 && AwaitsAnswer(todo[n-1]) {
		g.pending = todo[n-1]
	}
	return todo
}

// AwaitsAnswer reports whether an effect has an answer.
func AwaitsAnswer(e Effect) bool { return e.awaits() }

// ignore handles events that need no action in this state.
func ignore(*Lifecycle, Event, World) []Effect { return nil }

// observe applies an [Observation] of Nomad's objects. If the placer is not, or no longer,
// responsible for the gang, the gang leaves the queue.
//
// A new JobModifyIndex means that somebody registered the job. If an unanswered start has
// succeeded, the placer registered the job; otherwise the author did. If the author registered the
// job, the gang forgets the earlier version. In particular, the gang forgets the delay after
// failures, because the author may have fixed the cause of the failures.
func (g *Lifecycle) observe(e Event, w World) []Effect {
	o, now := e.(Observation), w.Now()
	changed := g.Job == nil || *g.Job.JobModifyIndex != *o.Job.JobModifyIndex
	var out []Effect
	if changed {
		g.Tries = 0
		g.RetryAt = time.Time{}
		g.trouble = nil
		g.stumbled = ""
		g.lineage = lineage{}
		g.Target, g.asks = nil, false // the target was computed for the earlier version
		es, ours := g.cameAbout(o, w)
		out = append(out, es...)
		g.edited = g.Queued && (g.edited || !ours)
		g.Since = now
		g.overwrote, g.recreated = o.Overwrote, o.Recreated // our undo or a newer version ends a lost update
	}
	if g.overwroteWith(o.Job) {
		g.overwrote, g.recreated = true, *o.Job.CreateIndex != *g.Job.CreateIndex
		g.RetryAt = time.Time{} // the delay of an earlier retry does not apply
	}
	// The author registered the job again during the stop. Without a gate, Nomad keeps the members
	// running, or reruns members that were told to stop. If the author's version has a gate,
	// members keep running if they were not told to stop yet.
	runsOn := o.Nomad == palapi.Starting || o.Nomad == palapi.Running || (o.Nomad == palapi.Resubmitted && g.stop != nil && !g.stop.requested)
	if changed && g.stop != nil && g.stop.gated && runsOn {
		g.stop, g.Reserved = nil, nil
		out = append(out, QueueKept{})
	}
	g.becomes(o.Observed)
	if g.Nomad == palapi.Running || g.Nomad == palapi.Waiting && g.stop == nil || g.Nomad == palapi.Lost || g.Nomad == palapi.Ended {
		g.Reserved = nil
	}
	if !g.Observed.Ours() {
		return append(out, g.leave()...)
	}
	g.Request, g.Refused = o.Request, o.Refused
	return out
}

// becomes sets the observed state. If the gang is complete, becomes clears the trouble.
func (g *memory) becomes(o Observed) {
	if o.Nomad == palapi.Running && g.Nomad != palapi.Running {
		g.trouble, g.stumbled = nil, ""
	}
	g.Observed = o
	g.forgive()
}

// Ours reports whether the placer is responsible for the job.
func (o Observed) Ours() bool { return o.Nomad.Ours() }

// leave handles a gang for which the placer is no longer responsible. If a decision is not written
// yet, leave writes it now, because people may ask why a job ran on its GPUs even after the job has
// ended.
func (g *memory) leave() []Effect {
	var out []Effect
	if g.Unsaved && g.Record != nil {
		g.Unsaved = false
		out = append(out, SaveRecord{*g.Record})
	}
	if g.Queued {
		out = append(out, Dequeue{Finished: g.Placed && g.Nomad == palapi.Ended && !rewrite.Stopped(g.Job) && g.Want > 0 && g.Have >= g.Want})
		g.Queued, g.Placed = false, false
	}
	return out
}

// reconcile carries out the duties that are due.
func (g *Lifecycle) reconcile(e Event, w World) []Effect {
	g.read, g.asks = readings{Reconcile: e.(Reconcile)}, false
	return g.doDuties(w)
}

// doDuties carries out the duties that are due. After every answer, doDuties begins again with the
// first duty. Each duty checks what was already read, so finished duties do nothing, and no duty
// needs to remember where it was interrupted.
func (g *Lifecycle) doDuties(w World) []Effect {
	if g.Nomad == palapi.Rejected { // the job is set aside and not examined
		return nil
	}
	due := g.read.Last || !w.Now().Before(g.RetryAt)
	var out []Effect
	for _, d := range duties[g.State(w)] {
		if !due && !d.always || d.registers && g.MayHaveOverwritten() {
			continue
		}
		es, on := d.do(g, w)
		out = append(out, es...)
		if !on {
			break
		}
	}
	return out
}

// answer applies the answer to an effect and continues with the duties.
func (g *Lifecycle) answer(e Event, of Effect, w World) []Effect {
	_, failed := e.(Failure)
	if !failed && g.stumbled != "" && g.stumbled == fmt.Sprintf("%T", of) {
		g.trouble, g.stumbled = nil, "" // the effect succeeded this time
	}
	switch a := e.(type) {
	case RecordRead:
		g.read.hasRecord, g.read.record = true, a.Record
	case VersionsRead:
		g.read.hasVersions, g.read.versions = true, a.Versions
		g.verify(a.Versions)
	case EvaluationsRead:
		g.read.hasEvaluations, g.read.evaluations = true, a.Evaluations
	case DeploymentRead:
		g.read.hasDeployment, g.read.deploys = true, a.Active
	case AllocsRead:
		g.read.hasAllocs, g.read.allocs = true, a.Allocs
	case Registered:
		return g.registered(a.Observed, of, w)
	case Done:
		return g.done(a.Of, w)
	case Failure:
		return g.failed(a, w)
	case NotNow:
		return g.putOff(a)
	}
	return g.doDuties(w)
}

// done records that an effect whose answer is [Done] was carried out.
func (g *Lifecycle) done(of Effect, w World) []Effect {
	switch of := of.(type) {
	case WriteRecord:
		s := g.stop
		if s != nil && !s.recorded {
			s.before, s.recorded = g.Record, true
		}
		g.Record, g.Unsaved = &of.Record, false
		if g.stop != nil {
			return g.proceed(w)
		}
	case Evaluate:
		g.evaluated, g.evaluatedAt = *g.Job.ModifyIndex, w.Now()
		return g.doDuties(w)
	case Deregister:
		g.overwrote = g.overwrote && of.Why == ToFinish
	case StopMembers:
		g.recordStopRequest()
	}
	return nil
}

// registered applies the job that Nomad has after a registration by the placer.
func (g *Lifecycle) registered(o Observed, of Effect, w World) []Effect {
	if c, ok := of.(Commit); ok {
		return g.started(o, c.Start, w)
	}
	r, ok := of.(Register)
	if !ok {
		return nil
	}
	had := g.Observed
	g.verifyLater(o.Job)
	g.lineage = g.lineage.rewrote(g.Job, o.Job)
	if r.Why == ToUndo {
		g.lineage = lineage{}
	}
	g.becomes(o)
	g.Since = w.Now()
	g.Request, g.Refused = w.Request(g.Observed)
	if g.Record != nil {
		g.Record.JobModifyIndex = *o.Job.JobModifyIndex
	}
	switch r.Why {
	case ToUndo:
		g.overwrote, g.edited = false, g.Queued // the job is the author's version again
	case ToResize:
		return g.resized(w)
	case ToSize:
		return g.resizeDone(had.Want, *r.size, w)
	case ToGoOn:
		if g.Observed.Ours() {
			return []Effect{g.lookAgain()}
		}
	case ToStop:
		g.Members = had.Members
		return append(g.closed(w), g.proceed(w)...)
	}
	return nil
}

// failed handles an effect that the placer could not carry out. A conflict is not a failure,
// because the job has changed and an observation will show the change.
func (g *Lifecycle) failed(f Failure, w World) []Effect {
	if c, ok := f.Of.(Commit); ok {
		return g.notStarted(c.Start, f, w)
	}
	if _, ok := f.Of.(StopMembers); ok {
		g.recordStopRequest()
	}
	s := g.stop
	out := g.cancelStop(f)
	if s != nil && !s.gated && s.why != Requeued {
		return append(out, g.log(Warn, "could not stop a gang", "reason", s.why, "error", f.Err))
	}
	resize, _ := f.Of.(Register)
	if f.Conflict || resize.Why == ToSize {
		return append(out, g.log(Debug, "could not change the job; trying again", "state", g.State(w), "error", f.Err))
	}
	out = append(out, g.log(Warn, "could not act on a job", "state", g.State(w), "error", f.Err))
	g.fail(w.Now(), reasonOf(f.Err))
	g.stumbled = ""
	if f.Of != nil {
		g.stumbled = fmt.Sprintf("%T", f.Of)
	}
	return out
}

// putOff handles an effect that the placer did not try, because the cycle ran out of time or a rate
// limit applies. An effect that was not tried has not failed.
func (g *Lifecycle) putOff(n NotNow) []Effect {
	if c, ok := n.Of.(Commit); ok {
		return []Effect{Release{g.Request.Gang, c.Placement}, g.requeue()}
	}
	return g.cancelStop(Failure{Of: n.Of})
}

// wrong handles an error that did not come from an effect.
func (g *Lifecycle) wrong(err error, w World) []Effect {
	return g.failed(Failure{Err: err}, w)
}

func (g *memory) log(l Level, text string, args ...any) Effect { return Log{l, text, args} }

// RegisteredJob returns a job as Nomad stores it after a registration: with new indexes, version,
// submit time and status. It replaces the job was, of which it can be an earlier version.
func RegisteredJob(job, was *api.Job, index uint64, now time.Time) *api.Job {
	if *was.JobModifyIndex == index {
		return was // nothing changed
	}
	out := *job
	at, pending := now.UnixNano(), "pending"
	version := *was.Version + 1
	out.CreateIndex = was.CreateIndex
	if *was.JobModifyIndex == 0 { // Nomad did not have it before
		version, out.CreateIndex = 0, &index
	}
	out.JobModifyIndex = &index
	out.ModifyIndex = &index
	out.Version = &version
	out.SubmitTime, out.Status = &at, &pending
	return &out
}
