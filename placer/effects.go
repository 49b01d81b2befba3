// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"
	"golang.org/x/time/rate"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// step delivers an event to a gang, and carries out the effects. Errors of one gang do not affect
// other gangs.
func (p *Placer) step(ctx context.Context, t *model.Tracked, e gang.Event) {
	t.Idle = false
	for e != nil {
		was, trouble := t.State(p.m), t.Trouble()
		heard, todo := e, t.Step(e, p.m.World())
		p.changed = p.changed || len(todo) > 0 || !t.Trouble().Same(trouble) || t.State(p.m) != was
		e = nil
		for _, effect := range todo {
			e = p.carryOut(ctx, t, effect)
			if e != nil && !gang.AwaitsAnswer(effect) {
				panic("a gang's effect that needs no answer has an answer")
			}
		}
		p.noteState(t, was, heard)
	}
}

// carryOut carries out an effect of a gang. carryOut returns the event that answers the effect, or
// nil.
func (p *Placer) carryOut(ctx context.Context, t *model.Tracked, e gang.Effect) gang.Event {
	if !gang.AwaitsAnswer(e) {
		p.carryOutHere(t, e)
		return nil
	}
	answer, err := p.askNomad(ctx, t, e)
	p.note(t, e, err)
	switch {
	case ctx.Err() != nil && err != nil:
		return gang.NotNow{Of: e} // the session has ended
	case err != nil:
		return failureOf(t, e, err)
	}
	return answer
}

// failureOf returns the event that tells a gang that an effect has failed. If the placer lacks a
// permission, failureOf records the error for [model.Model.Denials].
func failureOf(t *model.Tracked, e gang.Effect, err error) gang.Failure {
	if nomad.Refused(err) {
		t.NoteDenied(err)
	}
	return gang.Failure{Of: e, Err: err, Conflict: errors.Is(err, nomad.ErrConflict), Unknown: errors.Is(err, nomad.ErrUnknownOutcome)}
}

// note counts an effect on a job, and writes it to the audit log.
func (p *core) note(t *model.Tracked, e gang.Effect, err error) {
	switch e := e.(type) {
	case gang.Register:
		p.hooks.Meter.Registrations.WithLabelValues(string(e.Why), outcome(err)).Inc()
		why, _ := t.Stopping()
		if e.Why == gang.ToStop && err == nil {
			p.hooks.Meter.Stops.WithLabelValues(string(why)).Inc()
		}
		p.audit(t.Key, "registered", err, "purpose", e.Why, "over", *t.Job.JobModifyIndex)
	case gang.Deregister:
		p.hooks.Meter.Registrations.WithLabelValues(string(e.Why), outcome(err)).Inc()
		p.audit(t.Key, "deregistered", err, "purpose", e.Why, "purge", e.Purge)
	case gang.StopMembers:
		if len(e.Allocs) > 0 {
			p.audit(t.Key, "stopped members", err, "allocations", e.Allocs)
		}
	}
}

// audit writes a change of a job to the audit log.
func (p *core) audit(k cluster.JobKey, what string, err error, args ...any) {
	args = append([]any{"job", k.ID, "namespace", k.Namespace}, args...)
	if err != nil {
		args = append(args, "outcome", outcome(err), "error", err)
	}
	p.log.Named("audit").Info(what, args...)
}

// outcome returns the result of a registration as a label for metrics.
func outcome(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, nomad.ErrConflict):
		return "conflict"
	case errors.Is(err, nomad.ErrUnknownOutcome):
		return "unknown"
	}
	return "failed"
}

// versions returns the versions of a job that Nomad keeps. For a resubmitted gang, versions adds
// the version that the members still run, because Nomad no longer lists this version after many
// edits.
func (p *core) versions(ctx context.Context, t *model.Tracked) (map[uint64]*api.Job, error) {
	vs, err := p.nomad.Versions(ctx, t.Key)
	if err != nil || t.Nomad != palapi.Resubmitted || len(t.Members) == 0 {
		return vs, err
	}
	newest := slices.MaxFunc(t.Members, func(a, b *cluster.Alloc) int { return cmp.Compare(a.CreateIndex, b.CreateIndex) })
	return vs, p.nomad.AddVersionOf(ctx, vs, newest)
}

// askNomad carries out an effect that needs a request to Nomad.
func (p *Placer) askNomad(ctx context.Context, t *model.Tracked, e gang.Effect) (gang.Event, error) {
	switch e := e.(type) {
	case gang.ReadRecord:
		p.awaitRecord(store.DecisionPath(t.Key))
		r, err := store.In(p.nomad).Record(ctx, t.Key)
		if store.Unreadable(err) {
			p.log.Warn("cannot read a record; replacing it", "job", t.Key.ID, "namespace", t.Key.Namespace, "error", err)
			err = nil
		}
		return gang.RecordRead{Record: r}, err
	case gang.ReadVersions:
		vs, err := p.versions(ctx, t)
		return gang.VersionsRead{Versions: vs}, err
	case gang.ReadAllocs:
		as, err := p.nomad.JobAllocs(ctx, t.Key)
		return gang.AllocsRead{Allocs: as}, err
	case gang.ReadEvaluations:
		if e.Limited && !p.mayQueryEvaluation(t, p.m.Time) {
			return gang.NotNow{Of: e}, nil
		}
		evals, err := p.nomad.Evaluations(ctx, t.Key)
		return gang.EvaluationsRead{Evaluations: evals}, err
	case gang.ReadDeployment:
		active, err := p.nomad.Deploys(ctx, t.Key)
		return gang.DeploymentRead{Active: active}, err
	case gang.Register:
		return p.register(ctx, t, e)
	case gang.StopMembers:
		for _, id := range e.Allocs {
			if err := p.nomad.StopAlloc(ctx, t.Key, id); err != nil {
				return nil, err
			}
		}
	case gang.Deregister:
		if err := p.nomad.Deregister(ctx, t.Key, e.Purge); err != nil {
			return nil, err
		}
		if e.Why == gang.ToFinish {
			return gang.Done{Of: e}, p.readAgain(ctx, t.Key)
		}
	case gang.Evaluate:
		if err := p.nomad.Evaluate(ctx, t.Key); err != nil {
			return nil, err
		}
	case gang.WriteRecord:
		p.awaitRecord(store.DecisionPath(t.Key))
		if err := p.writeRecord(ctx, e.Record); err != nil {
			return nil, err
		}
		p.unsaved.forget(t.Key)
	}
	return gang.Done{Of: e}, nil
}

// carryOutHere carries out an effect that needs no request to Nomad.
func (p *Placer) carryOutHere(t *model.Tracked, e gang.Effect) {
	switch e := e.(type) {
	case gang.SaveRecord:
		p.unsaved.put(e.Record)
	case gang.Again:
		p.again = true
	case gang.Log:
		p.log.With("job", t.Key.ID, "namespace", t.Key.Namespace).Log(hclog.Level(e.Level), e.Text, e.Args...)
	case gang.Placed:
		p.notePlaced(t, e.Record)
	case gang.Sized:
		p.emitSized(t, e)
	case gang.StartAtTarget:
		p.moves = append(p.moves, arrival{t, e.Why})
	case gang.Dequeue:
		if e.Finished {
			p.noteFinished(t)
		}
		p.m.Update(t, e)
	default:
		p.m.Update(t, e)
	}
}

// notePlaced counts a gang that was placed, and adds the event.
func (p *core) notePlaced(t *model.Tracked, r gang.Record) {
	slowdown := 0.0
	c := r.Decision.Chosen
	if c != nil {
		slowdown = c.Cost
	}
	p.hooks.Meter.Placed(t.Key.Namespace, string(t.Request.Gang.Class), r.Waited, slowdown)
	p.emitPlaced(t, r)
}

// noteFinished measures how accurate the author's estimate of the gang's run time was. If there is
// no estimate, noteFinished does nothing.
func (p *core) noteFinished(t *model.Tracked) {
	said, r := t.Request.Hints.Duration, t.Record
	if said > 0 && r != nil && r.Attained == 0 && !r.Decided.IsZero() {
		p.hooks.Meter.Accuracy.WithLabelValues(string(t.Request.Gang.Class)).Observe(float64(p.m.Time.Sub(r.Decided)) / float64(said))
	}
}

// register registers a rewritten job for any purpose except a start. commit registers starts.
func (p *Placer) register(ctx context.Context, t *model.Tracked, e gang.Register) (gang.Event, error) {
	source := p.nomad.Source(ctx, e.Job)
	if e.Why != gang.ToUndo {
		why := ""
		if p.hasNews(t.Key) {
			why = "events about it have arrived"
		} else if e.Why != gang.ToStop {
			why = p.forbids(ctx, addition{t.Key, addedGPUs(t.Job, e.Job), true, false})
		}
		if why != "" {
			p.again = true
			return nil, fmt.Errorf("registering job %q is postponed, because %s: %w", t.Key.ID, why, nomad.ErrConflict)
		}
	}
	if err := p.allRun(ctx, t.Key, e.While); err != nil {
		return nil, err
	}
	resp, err := p.registerOver(ctx, e.Job, source, t.Job)
	if errors.Is(err, nomad.ErrConflict) {
		_ = p.readAgain(ctx, t.Key) // if this fails, an event will bring the job
	}
	if errors.Is(err, nomad.ErrUnknownOutcome) {
		p.m.NoteUnanswered(e.Job, t.Job, nil)
	}
	if err != nil {
		return nil, err
	}
	return p.registered(t, e.Job, resp.JobModifyIndex), nil
}

// allRun returns an error if one of the job's members (ids) no longer runs.
func (p *core) allRun(ctx context.Context, k cluster.JobKey, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	as, err := p.nomad.JobAllocs(ctx, k)
	runs := map[string]bool{}
	for _, a := range as {
		runs[a.ID] = a.Member()
	}
	if err == nil && slices.ContainsFunc(ids, func(id string) bool { return !runs[id] }) {
		err = fmt.Errorf("members of job %q no longer run: %w", k.ID, nomad.ErrConflict)
	}
	return err
}

// addedGPUs returns the GPUs that only the new pins name.
func addedGPUs(was, now *api.Job) []string {
	pins, _ := rewrite.Pinned(now)
	had, _ := rewrite.Pinned(was)
	return slices.DeleteFunc(pins.GPUs(), func(id string) bool { return slices.Contains(had.GPUs(), id) })
}

// registered stores the job in the form that Nomad should have after the placer's registration.
// registered returns the event for the gang.
func (p *core) registered(t *model.Tracked, job *api.Job, index uint64) gang.Registered {
	job = gang.RegisteredJob(job, t.Job, index, p.m.Time)
	p.m.State.Assume(job)
	return gang.Registered{Observed: gang.Observe(p.m.State, job)}
}

// readAgain reads a changed job from Nomad.
func (p *core) readAgain(ctx context.Context, k cluster.JobKey) error {
	job, err := p.nomad.Job(ctx, k)
	if err == nil && job != nil {
		p.m.State.PutJob(job)
	}
	return err
}

// If a gang has lacked members for too long, the placer reads the job's evaluations from Nomad at
// once. The placer reads the evaluations again after delays that double from 1 s up to
// slowestEvaluationQuery. The placer makes at most evaluationQueriesPerSecond such queries for all
// gangs together. More queries could make a slow Nomad even slower.
const (
	evaluationQueriesPerSecond = 20
	slowestEvaluationQuery     = 8 * time.Second
)

func newEvaluationLimit() *rate.Limiter {
	return rate.NewLimiter(evaluationQueriesPerSecond, evaluationQueriesPerSecond)
}

// mayQueryEvaluation reports whether the placer may read the job's evaluations now, and counts the
// queries that it allows.
func (p *Placer) mayQueryEvaluation(t *model.Tracked, now time.Time) bool {
	q := &t.EvaluationQueries
	index := *t.Job.JobModifyIndex
	if q.Index != index {
		*q = model.EvaluationQueries{Index: index}
	}
	if q.Count > 0 && now.Sub(q.Last) < min(time.Second<<min(q.Count-1, 10), slowestEvaluationQuery) {
		return false
	}
	if !p.evaluationLimit.AllowN(now, 1) {
		return false
	}
	q.Last, q.Count = now, q.Count+1
	return true
}
