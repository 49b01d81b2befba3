// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// overwrote says whether what we registered replaced something that we had not
// seen. Nomad compares the index that it is to enforce before it writes, not
// while it does (seen on 1.11.3): a job that is stopped, purged or edited in the
// milliseconds between comes back as it was. The version tells: registering
// makes the next one.
func (t *tracked) overwrote(now *api.Job) bool {
	if t.Job == nil || *t.Job.JobModifyIndex != *now.JobModifyIndex {
		return false
	}
	if now.CreateIndex == nil || t.Job.CreateIndex == nil {
		return false
	}
	return *now.CreateIndex != *t.Job.CreateIndex || *now.Version > *t.Job.Version
}

// checkLast looks after what was registered last and no event has told of yet,
// before the placer ends.
func (p *Placer) checkLast(ctx context.Context) error {
	for _, t := range p.sorted() {
		if guessed := t.guess != nil && t.guess == t.Job; !guessed && !t.replaced {
			continue
		}
		job, err := p.nomad.Job(ctx, t.Key)
		if err != nil {
			return err
		}
		if job == nil || !t.replaced && !t.overwrote(job) {
			continue
		}
		t.recreated = t.recreated || job.CreateIndex != nil && t.Job.CreateIndex != nil && *job.CreateIndex != *t.Job.CreateIndex
		t.Job = job
		if err := p.giveBack(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// registerTimeout is how long a placer that is to end waits for Nomad's answer
// to a registering that is under way.
const registerTimeout = 5 * time.Second

// registerWhole registers the job and waits for the answer even where ctx ends:
// what became of it must be known. Where no answer comes, it looks.
func (p *Placer) registerWhole(ctx context.Context, job *api.Job, index uint64) (*api.JobRegisterResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := whole(ctx)
	defer cancel()
	resp, err := p.nomad.Register(ctx, job, index)
	if errors.Is(err, nomad.ErrUnknownOutcome) {
		return p.lookUp(ctx, job, index, err)
	}
	return resp, err
}

// lookUp finds out what became of a registering, over the given JobModifyIndex,
// that was not answered: done, or overtaken by another. Where the job is still as
// it was, or cannot be read, that is not known: the servers may write it yet. So
// it is tried again over the same index, of which Nomad lets one pass.
func (p *Placer) lookUp(ctx context.Context, job *api.Job, index uint64, unknown error) (*api.JobRegisterResponse, error) {
	now, err := p.nomad.Job(ctx, nomad.KeyOf(job))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w; looking it up: %w", unknown, err)
	case now == nil && index > 0:
		return nil, fmt.Errorf("registering job %q: %w", *job.ID, nomad.ErrConflict)
	case now == nil || *now.JobModifyIndex == index:
		return nil, unknown
	case wishes(now) != wishes(job):
		return nil, fmt.Errorf("registering job %q: %w", *job.ID, nomad.ErrConflict)
	}
	p.log.Info("a registering that was not answered has come about", "job", *job.ID, "namespace", *job.Namespace)
	return &api.JobRegisterResponse{JobModifyIndex: *now.JobModifyIndex}, nil
}

// whole is a context that ends registerTimeout after ctx.
func whole(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(registerTimeout, cancel) })
	return out, func() { stop(); cancel() }
}

// giveBack undoes a registering that replaced somebody's else: a purged job is
// purged, a stopped one stopped, and an edited one is as its author edited it.
func (p *Placer) giveBack(ctx context.Context, t *tracked) error {
	log := p.log.With("job", t.Key.ID, "namespace", t.Key.Namespace)
	if *t.Job.Version == 0 {
		log.Warn("the job was purged while it was being placed, purging it again")
		return p.nomad.Deregister(ctx, t.Key, true)
	}
	versions, err := p.nomad.Versions(ctx, t.Key)
	if err != nil {
		return err
	}
	lost := versions[*t.Job.Version-1]
	switch {
	case t.recreated && *t.Job.Version == 1 && lost != nil && ours(lost):
		// Two of our registerings, one upon the other: no author has put pins there.
		log.Warn("the job was purged while it was being stopped, purging it again")
		return p.nomad.Deregister(ctx, t.Key, true)
	case lost == nil:
		return fmt.Errorf("version %d of the job, which was replaced while it was being placed, is not to be had", *t.Job.Version-1)
	case nomad.Ended(lost) && lost.Stop != nil && *lost.Stop:
		log.Warn("the job was stopped while it was being placed, stopping it again")
		return p.nomad.Deregister(ctx, t.Key, false)
	}
	log.Warn("the job was edited while it was being placed, taking over the edit")
	return p.register(ctx, t, lost)
}

// ours says whether a version carries pins, which only we put there.
func ours(job *api.Job) bool {
	_, pinned := rewrite.Pinned(job)
	return pinned
}

// lookBack looks, once, whether a job that this placer did not register was
// replaced by an earlier one that was killed before it saw that. Jobs whose last
// registering is recorded were seen.
func (p *Placer) lookBack(ctx context.Context, t *tracked) error {
	if t.lookedBack || t.replaced || t.guess != nil || len(t.Pins.Groups) == 0 || t.record == nil {
		return nil
	}
	if t.record.JobModifyIndex == *t.Job.JobModifyIndex || *t.Job.Version < 2 {
		t.lookedBack = true
		return nil
	}
	versions, err := p.nomad.Versions(ctx, t.Key)
	if err != nil {
		return err
	}
	t.lookedBack, t.replaced = true, broughtBack(versions, *t.Job.Version)
	return nil
}
