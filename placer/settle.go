// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// settle moves one job on from whatever phase it was found in, deciding
// nothing about GPUs. Its trouble is kept from the others.
func (p *Placer) settle(ctx context.Context, t *tracked, now time.Time) {
	if t.Phase == Rejected || now.Before(t.retryAt) && t.Phase != Running && t.Phase != Waiting {
		return
	}
	switch err := p.settleJob(ctx, t, now); {
	case err == nil:
	case errors.Is(err, nomad.ErrConflict), errors.Is(err, context.Canceled):
		p.log.Debug("lost a race", "job", t.Key.ID, "namespace", t.Key.Namespace, "phase", t.Phase)
	default:
		p.log.Warn("could not settle a job", "job", t.Key.ID, "namespace", t.Key.Namespace, "phase", t.Phase, "error", err)
		t.fail(now, err.Error())
	}
}

func (p *Placer) settleJob(ctx context.Context, t *tracked, now time.Time) error {
	due := !now.Before(t.retryAt)
	if due {
		if err := p.recall(ctx, t); err != nil {
			return err
		}
		if err := p.lookBack(ctx, t); err != nil {
			return err
		}
	}
	if t.replaced && due {
		err := p.giveBack(ctx, t)
		t.replaced = err != nil && !errors.Is(err, nomad.ErrConflict)
		return err
	}
	switch t.Phase {
	case Waiting:
		if t.gaveUp() != nil {
			return nil
		}
		return p.finished(ctx, t)
	case Lost:
		return p.revive(ctx, t)
	case Rerun:
		return p.reapply(ctx, t)
	case Stopping:
		return p.finishStopping(ctx, t)
	case Starting:
		if t.unsaved && now.Sub(t.record.Decided) > saveAfter {
			p.writeLater(t)
		}
		return p.repair(ctx, t, now)
	case Running:
		if err := p.canaries(ctx, t, now); err != nil {
			return err
		}
		return p.confirm(ctx, t, now)
	}
	return nil
}

// recall reads the record of a job that was placed before this placer started.
func (p *Placer) recall(ctx context.Context, t *tracked) error {
	if err := p.seek(ctx, t); err != nil {
		return err
	}
	if t.record != nil || len(t.Pins.Groups) == 0 {
		return nil
	}
	r, err := ReadRecord(ctx, p.nomad, t.Key)
	switch {
	case unreadable(err):
		p.log.Warn("a record cannot be understood, and is written anew", "job", t.Key.ID, "namespace", t.Key.Namespace, "error", err)
	case err != nil:
		return err
	}
	if r == nil {
		r = &Record{Namespace: t.Key.Namespace, Job: t.Key.ID, Submitted: time.Unix(0, *t.Job.SubmitTime)}
	}
	if ids := r.pinned(t.Job, t.Pins); ids != nil {
		p.state.Own(t.Key, ids)
	}
	t.record = r
	return nil
}

// register commits a rewriting that chooses no GPUs.
func (p *Placer) register(ctx context.Context, t *tracked, job *api.Job) error {
	resp, err := p.registerWhole(ctx, job, *t.Job.JobModifyIndex)
	if errors.Is(err, nomad.ErrConflict) {
		if job, err := p.nomad.Job(ctx, t.Key); err == nil && job != nil {
			p.state.PutJob(job)
		}
	}
	if err != nil {
		return err
	}
	job = registered(job, t.Job, resp.JobModifyIndex)
	p.state.PutJob(job)
	t.guess, t.seen = job, p.now
	t.Standing = StandingOf(p.state, job)
	if t.record != nil {
		t.record.JobModifyIndex = resp.JobModifyIndex
	}
	return nil
}

// finishStopping ends what a preemption or a repair began: the gate is on, the
// members still run.
func (p *Placer) finishStopping(ctx context.Context, t *tracked) error {
	if t.record != nil && t.record.GivenUp != "" {
		return p.stopMembers(ctx, t)
	}
	if !t.stopping {
		// A placer died between gate and stop. Nothing was lost: open again.
		p.log.Info("a preemption was cut short: the gang runs on", "job", t.Key.ID, "namespace", t.Key.Namespace)
		return p.register(ctx, t, rewrite.Open(t.Job))
	}
	return p.stopMembers(ctx, t)
}

func (p *Placer) stopMembers(ctx context.Context, t *tracked) error {
	for _, a := range t.Members {
		if err := p.nomad.StopAlloc(ctx, t.Key, a.ID); err != nil {
			return err
		}
	}
	return nil
}

// preempt stops a gang for another one: gate first, so that a placer that dies
// in between loses nothing, then its members.
func (p *Placer) preempt(ctx context.Context, t *tracked, forJob string) {
	p.log.Info("preempting", "job", t.Key.ID, "namespace", t.Key.Namespace, "for", forJob)
	if err := p.takeBack(ctx, t); err != nil {
		p.log.Warn("could not preempt", "job", t.Key.ID, "namespace", t.Key.Namespace, "error", err)
		p.line.Kept(t.Key.String())
	}
}

// takeBack puts a committed gang back into the queue.
func (p *Placer) takeBack(ctx context.Context, t *tracked) error {
	members := t.Members
	if t.record != nil && len(members) > 0 {
		now := p.now
		t.record.stop(now, now.Sub(t.startedAt(now)))
		if err := p.write(ctx, t); err != nil {
			return err
		}
	}
	if err := p.register(ctx, t, rewrite.Gate(t.Job)); err != nil {
		return err
	}
	t.gated = *t.Job.JobModifyIndex
	t.request, t.refused = p.requestOf(t.Standing)
	// Until all of it has stopped, all its GPUs are its own: the line waits for
	// them together.
	t.stopping, t.Members, t.held = true, members, gpuIDs(p.view, p.view.Holds(t.Key))
	return p.stopMembers(ctx, t)
}

// repair heals a job that is still not whole after the grace, once Nomad has
// nothing under way for it: some constraint that was not foreseen, a GPU that
// somebody else took or that fell sick, or a node that went down keeps part of
// it out. A gang goes back into the queue as a whole; a service, whose members
// do not wait for each other, gets further nodes.
func (p *Placer) repair(ctx context.Context, t *tracked, now time.Time) error {
	if t.age(now) < p.cfg.Grace || now.Before(t.retryAt) || !p.mayAsk(t, now) {
		return nil
	}
	why, err := p.stuck(ctx, t)
	if err != nil || why == "" {
		return err
	}
	why = fmt.Sprintf("%d of %d members are there: %s", t.Have, t.Want, why)
	log := p.log.With("job", t.Key.ID, "namespace", t.Key.Namespace)
	t.fail(now, why)
	if t.Pins.Mode == rewrite.ModeClass && t.Have > 0 {
		blocked, _, err := p.blocked(ctx, t)
		if err != nil {
			return err
		}
		// A batch job that Nomad does not try again has nothing to gain by room.
		if blocked || *t.Job.Type == api.JobTypeService {
			log.Info("members lack room", "reason", why)
			return p.extend(ctx, t)
		}
	}
	if err := p.countUserFailure(ctx, t); err != nil {
		return err
	}
	log.Warn("gang is not whole, taking it back", "reason", why)
	return p.takeBack(ctx, t)
}

// countUserFailure notes that the gang failed by its own fault, if it did, and
// gives it up after as many tries as there may be.
func (p *Placer) countUserFailure(ctx context.Context, t *tracked) error {
	f, ok := p.userFailure(t)
	if !ok {
		return nil
	}
	t.record.UserFailures++
	if t.record.UserFailures > p.retries(t.Job) {
		tries := fmt.Sprintf("%d tries on different GPUs", t.record.UserFailures)
		if t.record.UserFailures == 1 {
			tries = "one try"
		}
		t.record.GivenUp = fmt.Sprintf("given up after %s: %s. Mend it and run it again", tries, f.Reason)
		p.log.Warn("giving up", "job", t.Key.ID, "namespace", t.Key.Namespace, "reason", t.record.GivenUp)
	}
	return p.write(ctx, t)
}

// stuck is why the rest of the job does not come: "" where it is not known to
// be stuck, or Nomad has not had its last word.
func (p *Placer) stuck(ctx context.Context, t *tracked) (string, error) {
	evals, err := p.nomad.Evaluations(ctx, t.Key)
	if err != nil {
		return "", err
	}
	why := ""
	for _, e := range evals {
		switch {
		case e.Status == api.EvalStatusPending:
			return "", nil
		case e.Status == api.EvalStatusBlocked && e.CreateIndex > *t.Job.JobModifyIndex:
			why = refusal(e)
		}
	}
	if f := p.lastFailure(t); why == "" && f != nil {
		why = "a member failed, and Nomad does not try it again: " + f.Reason
	}
	return why, nil
}

// retryWithin is how long after it failed a gang is tried again whose job Nomad
// calls dead: what an earlier placer left behind is not begun anew.
const retryWithin = 10 * time.Minute

// lost says whether a gang of ours ended before its members had done their work,
// Nomad will not try it again, and it is to be: the infrastructure failed it, or
// all of its members failed by themselves.
func (p *Placer) lost(st Standing) bool {
	stopped := st.Job.Stop != nil && *st.Job.Stop
	if stopped || len(st.Pins.Groups) == 0 || rewrite.Gated(st.Job) || st.Have >= st.Want || *st.Job.Type != api.JobTypeBatch {
		return false
	}
	if f := p.lastFailure(&tracked{Standing: st}); f != nil {
		return f.Cause == Infrastructure || f.Cause == User && p.now.Sub(f.At) < retryWithin
	}
	// Nomad does not run a batch allocation anew that a drain stopped at once.
	return slices.ContainsFunc(p.state.AllocsOf(st.Key), func(a *nomad.Alloc) bool {
		return !a.Live() && a.Desired == api.AllocDesiredStatusStop && a.ModifyIndex > *st.Job.JobModifyIndex
	})
}

// retries is how often the gang is tried on other GPUs after it failed by its own
// fault.
func (p *Placer) retries(job *api.Job) int {
	h, err := rewrite.ParseHints(job)
	if err != nil || h.OnFailure == rewrite.ReplaceNothing {
		return 0
	}
	return p.cfg.Retries
}

// revive takes a lost gang back into the queue, so often and no more.
func (p *Placer) revive(ctx context.Context, t *tracked) error {
	if t.record.Revived >= revivals || t.record.GivenUp != "" {
		return nil
	}
	if _, own := p.userFailure(t); own {
		if err := p.countUserFailure(ctx, t); err != nil || t.record.GivenUp != "" {
			return err // Nomad calls the job dead, and it stays so
		}
	} else {
		t.record.Revived++
		if err := p.write(ctx, t); err != nil {
			return err
		}
	}
	reason := "its node was drained"
	if f := p.lastFailure(t); f != nil {
		reason = f.Reason
	}
	p.log.Warn("gang was lost, taking it back", "job", t.Key.ID, "namespace", t.Key.Namespace, "reason", reason)
	if t.queued { // it joins the line anew, to go elsewhere than where it failed
		p.line.Removed(since(p.now), t.Key.String())
		t.queued, t.running = false, false
	}
	return p.takeBack(ctx, t)
}

// revivals bounds how often the infrastructure may fail a gang before it is
// left as it is.
const revivals = 5

// lastFailure is the last failure of the gang as it is committed, nil for none.
func (p *Placer) lastFailure(t *tracked) *Failure {
	for i := len(p.history.failures) - 1; i >= 0; i-- {
		f := &p.history.failures[i]
		a := p.state.Allocs[f.Alloc]
		if a != nil && a.Job == t.Key && a.Next == "" && a.ModifyIndex > *t.Job.JobModifyIndex {
			return f
		}
	}
	return nil
}

// userFailure is the failure by its own fault that the gang is stuck for.
func (p *Placer) userFailure(t *tracked) (*Failure, bool) {
	f := p.lastFailure(t)
	return f, f != nil && f.Cause == User && t.record != nil
}

// extend adds nodes to the pins of a service for the members that it lacks.
// Only a group constraint changes, so that those that run are left alone,
// unless the new members need a higher class ceiling.
func (p *Placer) extend(ctx context.Context, t *tracked) error {
	r, err := p.view.Missing(t.Job)
	if err != nil {
		return err
	}
	pl, ok := pal.Place(p.view.Cluster, r.Gang, p.cfg.policy())
	if !ok {
		t.lastFail = "no room for the missing members: " + pal.Explain(p.view.Cluster, r.Gang, p.cfg.policy()).Reason
		return nil
	}
	pins := p.view.Widen(t.Pins, p.view.Pins(r, pl))
	if pins.Ceiling != t.Pins.Ceiling && t.request.Hints.OnFailure == rewrite.ReplaceMember {
		t.lastFail = fmt.Sprintf("the missing members wait for GPUs of class %d or better: slower ones would restart the others", t.Pins.Ceiling)
		return nil
	}
	if !slices.Equal(pins.GPUs(), t.Pins.GPUs()) && t.request.Hints.OnFailure == rewrite.ReplaceMember {
		t.lastFail = "the missing members wait for the GPUs that the job was given: others would restart the members that run"
		return nil
	}
	job, err := p.view.Pin(t.Job, pins)
	if err != nil {
		return err
	}
	return p.register(ctx, t, job)
}

func refusal(e *api.Evaluation) string {
	for group, m := range e.FailedTGAllocs {
		return fmt.Sprintf("group %q: %s", group, nomad.Refusal(m))
	}
	return "no reason given"
}

// confirm records once that all members run where they should.
func (p *Placer) confirm(ctx context.Context, t *tracked, now time.Time) error {
	if t.Astray {
		return p.gather(ctx, t, now)
	}
	r := t.record
	if r == nil || (!r.Confirmed.IsZero() && r.JobModifyIndex == *t.Job.JobModifyIndex) {
		return nil
	}
	if p.view.Promised(t.Key) {
		p.again = true // the view counts what the decision gave out, beside what Nomad chose
		return nil
	}
	if r.Decision.Gang == "" {
		p.reconstruct(t)
	}
	if t.Pins.Mode != rewrite.ModeGPU {
		// Nomad chose among those that the pins allow.
		held := p.view.Running(t.request, p.view.Holds(t.Key))
		r.Decision.Chosen = pal.Describe(p.view.Cluster, t.request.Gang, held)
	}
	r.Confirmed, r.JobModifyIndex = now, *t.Job.JobModifyIndex
	t.failures, t.lastFail = 0, ""
	p.writeLater(t)
	return nil
}

// gather takes a gang back that runs on other GPUs than it was given, once that
// has lasted.
func (p *Placer) gather(ctx context.Context, t *tracked, now time.Time) error {
	if t.age(now) < p.cfg.Grace || now.Before(t.retryAt) {
		return nil
	}
	t.fail(now, "Nomad gave it other GPUs than it was pinned to, or fewer (before 1.11.1: hashicorp/nomad#18364)")
	p.log.Warn("gang is astray, taking it back", "job", t.Key.ID, "namespace", t.Key.Namespace)
	return p.takeBack(ctx, t)
}

// reconstruct makes a record for a gang whose placer died before it wrote one.
func (p *Placer) reconstruct(t *tracked) {
	g := t.request.Gang
	pl := p.view.Running(t.request, p.view.Holds(t.Key))
	r := t.record
	r.Mode, r.Decided = t.Pins.Mode, time.Unix(0, *t.Job.SubmitTime)
	r.Decision = pal.Decision{
		Gang: g.ID, Class: g.Class, Policy: string(p.cfg.Placement), Demand: g.GPUs(), Placed: true,
		Chosen: pal.Describe(p.view.Cluster, g, pl),
	}
	r.Note = "the placer was restarted between commit and record: what was chosen is read back from Nomad, the alternatives are lost"
}
