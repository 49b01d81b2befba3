// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// Authors can submit a job to the placer before Nomad has the job. If the job can start at once,
// the placer registers it with its pins. The start of a submitted job needs one registration and
// one evaluation, instead of the two of each that a gated job needs. The queue treats a submitted
// job like any other job. If the job must wait, the placer registers it with its gate, as the
// author would have done.

// Register registers a job with Nomad in the name of the job's author. If isNew is true and Nomad
// already has a job with the same id, Register fails with [nomad.ErrConflict].
type Register func(ctx context.Context, job *api.Job, isNew bool) (*api.JobRegisterResponse, error)

// ErrNotSubmitted means that the placer did not register a submitted job and will not do so.
var ErrNotSubmitted = errors.New("the placer did not accept the job")

// submission is a job that an author has submitted to the placer.
type submission struct {
	job      *api.Job
	register Register
	// taken is set once: either by the placer, when it accepts the job, or by the author, when the
	// author stops waiting.
	taken atomic.Bool
	// answer is the channel for the answer to the author. answered is true once the answer was
	// sent.
	answer   chan submitted
	answered bool
	// gang is the tracked job while Nomad does not have the job, and nil after that. gang is also
	// nil if the job cannot start at once, and so is only registered with its gate.
	gang *model.Tracked
}

// submitted is the outcome of the registration of a submitted job.
type submitted struct {
	response *api.JobRegisterResponse
	err      error
}

// Submit registers a job by calling register. If the job starts now, register gets the job with
// pins. If the job must wait, register gets the job unchanged. The job must have its gate and
// Nomad's defaults. Submit returns the errors of register, and two other errors. [ErrNotSubmitted]
// means that register was not called and will not be called. errInterrupted means that the outcome
// is unknown.
func (p *inbox) Submit(ctx context.Context, job *api.Job, register Register) (*api.JobRegisterResponse, error) {
	s := &submission{job: job, register: register, answer: make(chan submitted, 1)}
	select {
	case p.submissions <- s:
	case <-ctx.Done():
		return nil, ErrNotSubmitted
	}
	select {
	case a := <-s.answer:
		return a.response, a.err
	case <-ctx.Done():
		if s.taken.CompareAndSwap(false, true) {
			return nil, ErrNotSubmitted
		}
	}
	a := <-s.answer // the placer answers every job that it accepted
	return a.response, a.err
}

// takeSubmissions accepts new submissions, without waiting for any.
func (p *inbox) takeSubmissions() (some bool) {
	for {
		select {
		case s := <-p.submissions:
			p.arriving = append(p.arriving, s)
			some, p.changed = true, true
		default:
			return some
		}
	}
}

// enqueueSubmissions puts submitted jobs into the queue, as if they had been registered with their
// gates. enqueueSubmissions leaves out jobs that cannot start at once. For example, Nomad may
// already have a job with the same id, or the placer may be unable to serve the job.
func (p *Placer) enqueueSubmissions(ctx context.Context, now time.Time) {
	came := p.arriving
	p.arriving = nil
	for _, s := range came {
		if !s.taken.CompareAndSwap(false, true) {
			continue
		}
		p.joined = append(p.joined, s)
		k := cluster.KeyOf(s.job)
		if _, aside := p.m.IsolatedJobs[k]; aside { // the placer does not serve this job after its registration, either
			continue
		}
		p.m.BeginJob(k)
		if p.m.State.Jobs[k] != nil || p.m.Jobs[k] != nil || cluster.Template(s.job) {
			continue
		}
		job := asRegistered(s.job, now)
		request, err := p.m.View.Request(job)
		if err != nil || request.Hints.After != "" || !request.Hints.Begin.IsZero() || p.m.Controls[k].Held != nil {
			// Leave the job to the next cycle.
			continue
		}
		t := p.m.Add(k)
		s.gang, t.Unregistered = t, true
		p.step(ctx, t, gang.Observation{Observed: gang.Observe(p.m.State, job), Request: request})
		p.step(ctx, t, gang.Sync{})
	}
	p.m.EndJob()
}

// submissionOf returns the submission of a tracked job. submissionOf returns nil if Nomad already
// has the job.
func (p *inbox) submissionOf(t *model.Tracked) *submission {
	if !t.Unregistered {
		return nil
	}
	for _, s := range p.joined {
		if s.gang == t {
			return s
		}
	}
	return nil
}

// asRegistered returns the job in the form that it would have just after a registration, but with
// all indexes 0.
func asRegistered(job *api.Job, now time.Time) *api.Job {
	out := *job
	at, pending, zero := now.UnixNano(), "pending", uint64(0)
	out.SubmitTime, out.Status, out.Version = &at, &pending, &zero
	out.CreateIndex, out.ModifyIndex, out.JobModifyIndex = &zero, &zero, &zero
	return &out
}

// waitingSubmissions returns one call for each submitted job that does not start now. The call
// registers the job with its gate. After the calls have run, done records their outcomes.
func (p *inbox) waitingSubmissions(ctx context.Context, starts []*start) (calls []call, done func(now time.Time)) {
	waiting := slices.DeleteFunc(slices.Clone(p.joined), func(s *submission) bool {
		return slices.ContainsFunc(starts, func(o *start) bool { return o.submission == s })
	})
	results := make([]submitted, len(waiting))
	key := func(s *submission) cluster.JobKey { return cluster.KeyOf(s.job) }
	calls = callsFor(waiting, key, func(i int, s *submission) {
		results[i] = p.registerAs(ctx, s, s.job, false)
		s.reply(results[i]) // the author need not wait for the other jobs of the cycle
	})
	return calls, func(now time.Time) {
		for i, s := range waiting {
			p.submissionRegistered(s, results[i], now)
		}
	}
}

// registerAs registers a submitted job in the name of its author.
func (p *core) registerAs(ctx context.Context, s *submission, job *api.Job, isNew bool) (r submitted) {
	if ctx.Err() != nil {
		return submitted{err: ErrNotSubmitted}
	}
	ctx, cancel := withGracePeriod(ctx)
	defer cancel()
	r.response, r.err = s.register(ctx, job, isNew)
	if isNew && errors.Is(r.err, nomad.ErrUnknownOutcome) {
		r.response, r.err = p.lookUp(ctx, job, nil, r.err)
	}
	return r
}

// submissionRegistered records the outcome after a submitted job was registered with its gate, and
// answers the author.
func (p *inbox) submissionRegistered(s *submission, r submitted, now time.Time) {
	t := p.m.Jobs[cluster.KeyOf(s.job)]
	if t != nil && t == s.gang {
		s.gang, t.Unregistered = nil, false
		if r.err == nil {
			job := gang.RegisteredJob(t.Job, t.Job, r.response.JobModifyIndex, now)
			job.CreateIndex = nil // another author may have registered the job first
			p.m.State.Assume(job)
			t.Job = job
		} else {
			p.m.Queue.Removed(gang.QueueTime(now), t.Key.String())
			p.m.Forget(t.Key)
		}
	}
	p.answer(s, r)
}

// registerWithGate handles a submitted job whose registration with pins failed. registerWithGate
// registers the job with its gate, unless Nomad refused the author's registration.
func (p *inbox) registerWithGate(ctx context.Context, s *start, now time.Time) {
	sub := s.submission
	if s.refused {
		p.submissionRegistered(sub, submitted{err: s.err}, now)
		return
	}
	p.log.Debug("registering a job with its gate, because it could not be placed at once", "job", s.t.Key.ID, "namespace", s.t.Key.Namespace, "error", s.err)
	p.submissionRegistered(sub, p.registerAs(ctx, sub, sub.job, false), now)
}

// reply answers the author of a submission, but only once.
func (s *submission) reply(r submitted) {
	if !s.answered {
		s.answered = true
		s.answer <- r
	}
}

// answer answers the author of a submission, and drops the submission.
func (p *inbox) answer(s *submission, r submitted) {
	s.reply(r)
	p.joined = slices.DeleteFunc(p.joined, func(o *submission) bool { return o == s })
}

// errInterrupted is the answer if nobody knows whether the job was registered.
var errInterrupted = errors.New("the placer was interrupted: the job may or may not be registered")

// interruptSubmissions answers the authors of all submissions, because a session ends. If the
// placer has accepted a job, the outcome is unknown. If the placer has not accepted a job, its
// author can submit it elsewhere.
func (p *inbox) interruptSubmissions() {
	for _, s := range slices.Clone(p.joined) {
		p.answer(s, submitted{err: errInterrupted})
	}
	p.takeSubmissions()
	for _, s := range p.arriving {
		if s.taken.CompareAndSwap(false, true) {
			s.answer <- submitted{err: ErrNotSubmitted}
		}
	}
	p.arriving = nil
}
