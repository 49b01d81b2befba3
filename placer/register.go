// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// checkLast runs before the placer ends. checkLast checks the registrations that no event has
// confirmed yet.
func (p *Placer) checkLast(ctx context.Context) error {
	for _, t := range p.m.Sorted() {
		if !t.MayHaveOverwritten() {
			continue
		}
		job, err := p.nomad.Job(ctx, t.Key)
		if err != nil {
			return err
		}
		if job == nil {
			continue
		}
		p.step(ctx, t, gang.Observation{Observed: gang.Observe(p.m.State, job), Request: t.Request, Refused: t.Refused})
		if t.Overwrote() {
			p.step(ctx, t, gang.Reconcile{Last: true})
		}
	}
	return nil
}

// registerTimeout is how long a placer that is ending waits for Nomad's answer to a registration.
const registerTimeout = 5 * time.Second

// registerOver registers job, but only if Nomad's version of the job is still was. registerOver
// waits for the answer even if ctx ends, because the placer must know the outcome. If there is no
// answer, registerOver reads the job from Nomad. source is the jobspec that the author wrote, or
// nil if Nomad does not have it.
func (p *core) registerOver(ctx context.Context, job *api.Job, source *api.JobSubmission, was *api.Job) (*api.JobRegisterResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := withGracePeriod(ctx)
	defer cancel()
	resp, err := p.nomad.RegisterWith(ctx, job, source, *was.JobModifyIndex)
	if errors.Is(err, nomad.ErrUnknownOutcome) {
		return p.lookUp(ctx, job, was, err)
	}
	return resp, err
}

// lookUp finds out the outcome of a registration that Nomad did not confirm, because the answer was
// lost or was a server error (500). Either the registration succeeded, or another registration came
// first. was is the job before the registration. If the job is unchanged,
// gone, or unreadable, the outcome stays unknown, because the servers can still write the
// registration. The placer then retries with the same index, so Nomad accepts only one of the two
// registrations. If a late write replaces a change by the author, the placer makes this change again
// (see [model.Model.WroteLate]).
func (p *core) lookUp(ctx context.Context, job, was *api.Job, unknown error) (*api.JobRegisterResponse, error) {
	now, err := p.nomad.Job(ctx, cluster.KeyOf(job))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w; looking it up: %w", unknown, err)
	case now == nil || *now.JobModifyIndex == *was.JobModifyIndex:
		return nil, unknown
	case gang.SpecText(now) != gang.SpecText(job), rewrite.Stopped(now): // or its author has stopped it since
		return nil, fmt.Errorf("registering job %q: %w", *job.ID, nomad.ErrConflict)
	}
	p.log.Info("a registration that Nomad did not confirm has succeeded", "job", *job.ID, "namespace", *job.Namespace)
	return &api.JobRegisterResponse{JobModifyIndex: *now.JobModifyIndex}, nil
}

// withGracePeriod returns a context that ends registerTimeout later than ctx.
func withGracePeriod(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(registerTimeout, cancel) })
	return out, func() { stop(); cancel() }
}
