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

// checkLast looks after what was registered last and no event has told of yet,
// before the placer ends.
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

// registerTimeout is how long a placer that is to end waits for Nomad's answer
// to a registering that is under way.
const registerTimeout = 5 * time.Second

// registerWhole registers the job over what it was and waits for the answer even where
// ctx ends: what became of it must be known. Where no answer comes, it looks. source is what
// the author wrote, nil if Nomad has none.
func (p *Placer) registerWhole(ctx context.Context, job *api.Job, source *api.JobSubmission, was *api.Job) (*api.JobRegisterResponse, error) {
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

// lookUp finds out what became of a registering over what the job was, nil for a new one,
// that was not answered: done, or overtaken by another. Where the job is still as it was,
// or gone, or cannot be read, that is not known: the servers may write it yet. So it is tried
// again over the same index, of which Nomad lets one pass; a job that comes back so after its
// author has purged it is purged again (see [model.Model.BroughtBack]).
//
// Where the job has had more than one registration since, that the last looks like ours
// proves nothing: its author may have run it again, and another placer have chosen the same
// GPUs. What there is to undo is then told from the versions.
func (p *Placer) lookUp(ctx context.Context, job, was *api.Job, unknown error) (*api.JobRegisterResponse, error) {
	now, err := p.nomad.Job(ctx, cluster.KeyOf(job))
	next := uint64(0) // the version that is ours
	if was != nil {
		next = *was.Version + 1
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w; looking it up: %w", unknown, err)
	case now == nil || was != nil && *now.JobModifyIndex == *was.JobModifyIndex:
		return nil, unknown
	case gang.AuthorSpec(now) != gang.AuthorSpec(job), *now.Version > next, rewrite.Stopped(now): // or its author has stopped what came about
		return nil, fmt.Errorf("registering job %q: %w", *job.ID, nomad.ErrConflict)
	}
	p.log.Info("a registration that Nomad did not answer has succeeded", "job", *job.ID, "namespace", *job.Namespace)
	return &api.JobRegisterResponse{JobModifyIndex: *now.JobModifyIndex}, nil
}

// withGracePeriod gives a context that ends registerTimeout after ctx does.
func withGracePeriod(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(registerTimeout, cancel) })
	return out, func() { stop(); cancel() }
}
