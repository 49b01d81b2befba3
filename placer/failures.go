// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// noteFailures looks for allocations that failed since the last cycle, and
// draws the consequences for their GPUs.
func (p *Placer) noteFailures(ctx context.Context, now time.Time) error {
	defer func() { p.m.Failures, p.m.Quarantine = p.failureHistory.failures, p.failureHistory.quarantine }()
	switch err := p.failureHistory.load(ctx, p.nomad, now); {
	case store.Unreadable(err):
		p.log.Warn("cannot read the stored failures or quarantine; starting with empty ones", "error", err)
	case err != nil:
		return err
	}
	var found []failure.Failure
	unhealthy := sync.OnceValue(p.m.State.Unhealthy) // looked up if there is something to explain
	for _, a := range p.m.State.Failed() {
		if !p.failureHistory.knows(a) {
			found = append(found, notAfter(p.m.Diagnose(a, unhealthy()), now))
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.SortFunc(found, func(a, b failure.Failure) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Alloc, b.Alloc))
	})
	found = p.failureHistory.newestJudgeable(found)
	for _, f := range found {
		p.hooks.Meter.Failed(string(f.Cause))
		p.log.Warn("allocation failed", "job", f.Job, "namespace", f.Namespace, "node", f.Node, "cause", f.Cause, "reason", f.Reason)
	}
	successes := p.m.State.Successes()
	for i := range successes {
		successes[i].At = earlier(successes[i].At, now)
	}
	before := p.failureHistory.quarantine
	spared, err := p.failureHistory.note(ctx, p.nomad, found, failure.Evidence{Successes: successes, Models: p.m.State.GPUModels()}, now)
	for _, s := range spared {
		p.log.Warn("a GPU is suspect, but the quarantine for failing jobs is full", "gpu", s.GPU, "reason", s.Reason)
	}
	if err == nil {
		p.emitFailures(found, before)
	}
	return err
}

// notAfter is the failure with times that are not after now. The servers' clock may be
// ahead of ours: what happens a year from now would count for a year.
func notAfter(f failure.Failure, now time.Time) failure.Failure {
	if ahead := f.At.Sub(now); ahead > 0 {
		f.At, f.Placed = f.At.Add(-ahead), f.Placed.Add(-ahead)
	}
	return f
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
