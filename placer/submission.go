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

// A job may come to the placer before Nomad knows it. Where it can start at
// once, it is registered with its pins, so that one registration and one
// evaluation of Nomad's do what takes two of each for a job that comes with its
// gate. The queue decides as for any other; what has to wait is registered with
// its gate, as if it had come that way.

// Register registers a job in its author's name, at Nomad. isNew: only if Nomad
// has no job of that id, failing with [nomad.ErrConflict] where it has.
type Register func(ctx context.Context, job *api.Job, isNew bool) (*api.JobRegisterResponse, error)

// ErrNotSubmitted is a submission of which the placer has done nothing.
var ErrNotSubmitted = errors.New("the placer did not take the job in")

// submission is a job that has come that way.
type submission struct {
	job      *api.Job
	register Register
	// taken is set by whoever comes first: the placer that takes it in, or the
	// author who does not wait any longer.
	taken atomic.Bool
	// answer holds one; answered is set with it, by whoever registers the job or
	// by the placer after that.
	answer   chan submitted
	answered bool
	// gang is what is tracked of the job until Nomad has it; nil if it only waits.
	gang *model.Tracked
}

// submitted is what became of it.
type submitted struct {
	response *api.JobRegisterResponse
	err      error
}

// Submit has a job registered, by register: pinned where it starts now, as it is
// where it waits. The job has its gate and Nomad's defaults filled in. Errors
// are register's, but for [ErrNotSubmitted]: then register was not called, and
// will not be.
func (p *Placer) Submit(ctx context.Context, job *api.Job, register Register) (*api.JobRegisterResponse, error) {
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
	a := <-s.answer // the placer answers what it has taken in
	return a.response, a.err
}

// takeSubmissions notes what has come, without waiting.
func (p *Placer) takeSubmissions() (some bool) {
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

// enqueueSubmissions puts the jobs that have come into the queue, as Nomad would show them if
// they had been registered with their gates. Those that cannot start, whatever
// the queue says, are not in it: Nomad has a job of that id, or they cannot be
// served.
func (p *Placer) enqueueSubmissions(ctx context.Context, now time.Time) {
	came := p.arriving
	p.arriving = nil
	for _, s := range came {
		if !s.taken.CompareAndSwap(false, true) {
			continue
		}
		p.joined = append(p.joined, s)
		k := cluster.KeyOf(s.job)
		if _, aside := p.m.IsolatedJobs[k]; aside { // once Nomad has it, it is left alone
			continue
		}
		p.m.BeginJob(k)
		if p.m.State.Jobs[k] != nil || p.m.Jobs[k] != nil || cluster.Template(s.job) || p.m.State.Queues.Refusal(s.job) != nil {
			continue
		}
		job := asRegistered(s.job, now)
		request, err := p.m.View.Request(job)
		if err != nil || request.Hints.After != "" || p.m.Controls[k].Held != nil { // the next cycle looks what has finished
			continue
		}
		t := p.m.Add(k)
		s.gang, t.Unregistered = t, true
		p.step(ctx, t, gang.Observation{Observed: gang.Observe(p.m.State, job), Request: request})
		p.step(ctx, t, gang.Sync{})
	}
	p.m.EndJob()
}

// submissionOf is the submission that a tracked job has come by, nil if Nomad has it.
func (p *Placer) submissionOf(t *model.Tracked) *submission {
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

// asRegistered is the job as it would be if it had just been registered, with
// indexes of 0.
func asRegistered(job *api.Job, now time.Time) *api.Job {
	out := *job
	at, pending, zero := now.UnixNano(), "pending", uint64(0)
	out.SubmitTime, out.Status, out.Version = &at, &pending, &zero
	out.CreateIndex, out.ModifyIndex, out.JobModifyIndex = &zero, &zero, &zero
	return &out
}

// waitingSubmissions are calls that register those that do not start; done, after
// them, answers the authors.
func (p *Placer) waitingSubmissions(ctx context.Context, starts []*start) (calls []call, done func(now time.Time)) {
	waiting := slices.DeleteFunc(slices.Clone(p.joined), func(s *submission) bool {
		return slices.ContainsFunc(starts, func(o *start) bool { return o.submission == s })
	})
	results := make([]submitted, len(waiting))
	key := func(s *submission) cluster.JobKey { return cluster.KeyOf(s.job) }
	calls = callsFor(waiting, key, func(i int, s *submission) {
		results[i] = p.registerAs(ctx, s, s.job, false)
		s.reply(results[i]) // he need not wait for the others of the cycle
	})
	return calls, func(now time.Time) {
		for i, s := range waiting {
			p.submissionRegistered(s, results[i], now)
		}
	}
}

// registerAs registers in the author's name.
func (p *Placer) registerAs(ctx context.Context, s *submission, job *api.Job, isNew bool) (r submitted) {
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

// submissionRegistered notes that a job was registered with its gate, or was not.
func (p *Placer) submissionRegistered(s *submission, r submitted, now time.Time) {
	t := p.m.Jobs[cluster.KeyOf(s.job)]
	if t != nil && t == s.gang {
		s.gang, t.Unregistered = nil, false
		if r.err == nil {
			job := gang.RegisteredJob(t.Job, t.Job, r.response.JobModifyIndex, now)
			job.CreateIndex = nil // somebody else may have been first
			p.m.State.Assume(job)
			t.Job = job
		} else {
			p.m.Queue.Removed(gang.QueueTime(now), t.Key.String())
			p.m.Forget(t.Key)
		}
	}
	p.answer(s, r)
}

// registerWithGate notes that a job could not be registered with its pins. Where it
// is not Nomad that refused the author, it is registered with its gate.
func (p *Placer) registerWithGate(ctx context.Context, s *start, now time.Time) {
	sub := s.submission
	if s.refused {
		p.submissionRegistered(sub, submitted{err: s.err}, now)
		return
	}
	p.log.Debug("registering with the gate what could not be placed at once", "job", s.t.Key.ID, "namespace", s.t.Key.Namespace, "error", s.err)
	p.submissionRegistered(sub, p.registerAs(ctx, sub, sub.job, false), now)
}

// reply answers the author, once.
func (s *submission) reply(r submitted) {
	if !s.answered {
		s.answered = true
		s.answer <- r
	}
}

// answer answers the author, and is done with the submission.
func (p *Placer) answer(s *submission, r submitted) {
	s.reply(r)
	p.joined = slices.DeleteFunc(p.joined, func(o *submission) bool { return o == s })
}

// errInterrupted answers who cannot be told what became of a job.
var errInterrupted = errors.New("the placer was interrupted: the job may or may not be registered")

// interruptSubmissions answers those that were taken in when the session ended, and has the
// authors of the rest try elsewhere.
func (p *Placer) interruptSubmissions() {
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
