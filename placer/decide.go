// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// start is a decision to be committed.
type start struct {
	t         *tracked
	placement pal.Placement
	pins      rewrite.Pins
	record    Record
	committed *api.Job
	err       error
	// submitted answers its author, where the job has come from him; refused: err
	// is that answer.
	submitted submitted
	refused   bool
}

// decide asks the line what to do and does it.
func (p *Placer) decide(ctx context.Context, now time.Time) error {
	starts := p.arrived(now)
	for _, a := range p.line.Decide(since(now), p.view.Cluster) {
		t := p.byID(a.Job)
		p.on(keyOf(a.Job))
		switch {
		case t == nil:
			p.line.Removed(since(now), a.Job)
		case a.Kind == queue.Start:
			starts = append(starts, p.prepare(t, a.Found, now))
			p.view.Take(t.request.Gang, a.Placement)
		case a.Kind == queue.Preempt && p.unregistered(a.For):
			// Whether Nomad takes the job is not known yet: nothing is stopped for it.
			// Once it is registered, with its gate, the next cycle preempts for it.
			p.line.Kept(a.Job)
			p.again = true
		case a.Kind == queue.Preempt:
			p.preempt(ctx, t, a.For)
		case a.Kind == queue.Migrate:
			p.migrate(ctx, t, a.Placement, now)
		}
	}
	p.off()
	p.again = p.again || len(starts) >= startsPerCycle
	p.commitAll(ctx, starts, now)
	for _, s := range starts {
		p.on(s.t.Key)
		p.committed(ctx, s, now)
	}
	p.off()
	return ctx.Err()
}

func (p *Placer) byID(id string) *tracked { return p.jobs[keyOf(id)] }

// keyOf is the job that the line knows by the id.
func keyOf(id string) nomad.JobKey {
	namespace, name, _ := strings.Cut(id, "/") // no namespace has a slash
	return nomad.JobKey{Namespace: namespace, ID: name}
}

// unregistered says whether a job is in the line that Nomad does not have yet.
func (p *Placer) unregistered(id string) bool {
	t := p.byID(id)
	return t != nil && t.submission != nil
}

// prepare works out the reasons, on the cluster as it is at this point of the
// pass, and the pins.
func (p *Placer) prepare(t *tracked, f pal.Found, now time.Time) *start {
	d, best := pal.ExplainFound(p.view.Cluster, t.request.Gang, p.cfg.policy(), f)
	note := ""
	if !best {
		note = "the queue kept some of the free GPUs from it: for a gang that goes first, or because they are outliers that it can do without"
	}
	r := Record{
		Namespace: t.Key.Namespace, Job: t.Key.ID, Submitted: t.submitted(), Decided: now,
		Mode: t.request.Mode, Decision: d, Note: note,
	}
	if t.record != nil && len(t.Pins.Groups) > 0 {
		r.UserFailures, r.Revived = t.record.UserFailures, t.record.Revived
	}
	r.Waited = max(0, now.Sub(t.waitsSince()))
	if had := t.ran(); had != nil && had.Attained > 0 {
		r.Attained, r.Done, r.Waited = had.Attained, had.Done, r.Waited+had.Waited
	}
	return &start{t: t, placement: f.Placement, pins: p.view.Pins(t.request, f.Placement), record: r}
}

// commitAll writes the decisions, the jobs that have come and wait, and what
// there is to record, some at a time.
func (p *Placer) commitAll(ctx context.Context, starts []*start, now time.Time) {
	var calls []call
	for _, s := range starts {
		calls = append(calls, call{s.t.Key, func() { s.err = p.commit(ctx, s) }})
	}
	waiting, answer := p.waitingSubmissions(ctx, starts)
	records, done := p.flushing(ctx, p.recordsDue(now))
	inParallel(slices.Concat(calls, waiting, records))
	answer(now)
	p.trouble(recordingDecisions, done())
}

// commit is the atomic step. The record is written when the members are seen:
// one write for a decision, and a placer that dies before reads back from Nomad
// what was chosen.
func (p *Placer) commit(ctx context.Context, s *start) error {
	job, err := p.view.Pin(s.t.Job, s.pins)
	if err != nil {
		return err
	}
	if !s.t.request.Modelled || s.t.failures > 0 {
		if err := p.dryRun(ctx, job); err != nil {
			return err
		}
	}
	if p.hooks.BeforeCommit != nil {
		p.hooks.BeforeCommit(s.t.Key)
	}
	resp, err := p.registerStart(ctx, s, job)
	if err != nil {
		return err
	}
	if p.hooks.AfterCommit != nil {
		p.hooks.AfterCommit(s.t.Key)
	}
	if s.t.submission != nil {
		s.t.submission.reply(s.submitted) // he need not wait for the others of the cycle
	}
	s.committed = registered(job, s.t.Job, resp.JobModifyIndex)
	s.record.JobModifyIndex = resp.JobModifyIndex
	return nil
}

// registerStart registers the pinned job: in the placer's name, or in its
// author's where that is who has it registered.
func (p *Placer) registerStart(ctx context.Context, s *start, job *api.Job) (*api.JobRegisterResponse, error) {
	if s.t.submission == nil {
		return p.registerWhole(ctx, job, *s.t.Job.JobModifyIndex)
	}
	r := p.registerAs(ctx, s.t.submission, job, true)
	s.submitted, s.refused = r, r.err != nil && !errors.Is(r.err, nomad.ErrConflict)
	return r.response, r.err
}

// registered is the job as Nomad has it after registering it over was: job may
// be an earlier version.
func registered(job, was *api.Job, index uint64) *api.Job {
	if *was.JobModifyIndex == index {
		return was // there was nothing to change
	}
	out := *job
	now, pending := time.Now().UnixNano(), "pending"
	version := *was.Version + 1
	out.CreateIndex = was.CreateIndex
	if *was.JobModifyIndex == 0 { // Nomad did not have it before
		version, out.CreateIndex = 0, &index
	}
	out.JobModifyIndex, out.ModifyIndex, out.Version = &index, &index, &version
	out.SubmitTime, out.Status = &now, &pending
	return &out
}

// dryRun asks Nomad about what the view does not model.
func (p *Placer) dryRun(ctx context.Context, job *api.Job) error {
	resp, err := p.nomad.DryRun(ctx, job)
	if err != nil {
		return err
	}
	for group, m := range resp.FailedTGAllocs {
		return fmt.Errorf("nomad's dry run refuses group %q on the chosen nodes: %s", group, nomad.Refusal(m))
	}
	return nil
}

// committed takes in how a commit went.
func (p *Placer) committed(ctx context.Context, s *start, now time.Time) {
	t, id := s.t, s.t.Key.String()
	log := p.log.With("job", t.Key.ID, "namespace", t.Key.Namespace)
	switch {
	case s.err == nil:
		delete(p.limbo, t.Key)
		p.state.PutJob(s.committed)
		p.state.Own(t.Key, s.pins.GPUs())
		if t.submission != nil {
			p.answer(t.submission, s.submitted)
			t.submission = nil
		}
		t.guess, t.seen = s.committed, p.now
		t.Job, t.record, t.running, t.stopping = s.committed, &s.record, true, false
		t.unsaved = true
		t.Phase, t.Pins = Starting, s.pins
		if s.pins.Mode != rewrite.ModeGPU {
			t.held = gpuIDs(p.view, s.placement.GPUs())
		}
		t.holds = s.placement.GPUs()
		slices.Sort(t.holds)
		p.line.Started(since(now), id, s.placement)
		p.startedOne(now)
		c := s.record.Decision.Chosen
		log.Info("placed", "gpus", len(t.holds), "nodes", c.Nodes, "app_class", t.request.Gang.Class, "pm_score", c.PMScore, "cost", c.Cost)
	case t.submission != nil:
		p.keepAside(s, now)
		p.turnedAway(ctx, s, now)
	case errors.Is(s.err, nomad.ErrConflict):
		p.view.Release(t.request.Gang, s.placement)
		log.Debug("lost a race, reading the job again")
		p.requeue(t, now)
		if job, err := p.nomad.Job(ctx, t.Key); err == nil && job != nil {
			p.state.PutJob(job)
		}
	default:
		p.keepAside(s, now)
		p.view.Release(t.request.Gang, s.placement)
		p.requeue(t, now)
		t.fail(now, s.err.Error())
		log.Warn("could not place", "error", s.err, "retry_in", t.retryAt.Sub(now))
	}
}

// requeue tells the line that a start, or a move's, did not come about.
func (p *Placer) requeue(t *tracked, now time.Time) {
	if t.running {
		p.line.Stopped(since(now), t.Key.String())
		t.running = false
		return
	}
	p.line.Requeue(since(now), t.Key.String())
}

// fail makes the job wait before it is tried again: 2 s, 4 s, … 5 min.
func (t *tracked) fail(now time.Time, why string) {
	t.failures++
	t.retryAt = now.Add(min(time.Second<<min(t.failures, 10), 5*time.Minute))
	t.lastFail = why
}

func gpuIDs(v *nomad.View, gpus []int) []string {
	var ids []string
	for _, u := range gpus {
		ids = append(ids, v.Cluster.GPU(u).ID)
	}
	return ids
}
