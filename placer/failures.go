// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// What is known of failures: see package failure.
type (
	Cause      = failure.Cause
	Failure    = failure.Failure
	Quarantine = failure.Quarantine
)

// The causes.
const (
	Infrastructure = failure.Infrastructure
	User           = failure.User
	Unknown        = failure.Unknown
)

// avoidFor is how long a gang goes elsewhere, if it can, after a node failed it.
const avoidFor = time.Hour

// failedOn are the nodes, by name, on which members of a job failed lately. Where
// an unhealthy GPU was to blame that is kept out anyway, and a node that went down is
// as good as any other when it is back.
func (h *failureHistory) failedOn(k nomad.JobKey, now time.Time) map[string]bool {
	var nodes map[string]bool
	for _, f := range h.failures {
		if f.Job == k.ID && f.Namespace == k.Namespace && f.Unhealthy == nil && f.Reason != failure.NodeDown && now.Sub(f.At) < avoidFor {
			if nodes == nil {
				nodes = map[string]bool{}
			}
			nodes[f.Node] = true
		}
	}
	return nodes
}

// noteFailures looks for allocations that failed since the last cycle, and
// draws the consequences for their GPUs.
func (p *Placer) noteFailures(ctx context.Context, now time.Time) error {
	switch err := p.failureHistory.load(ctx, p.nomad, now); {
	case store.Unreadable(err):
		p.log.Warn("cannot read the stored failures or quarantine; starting with empty ones", "error", err)
	case err != nil:
		return err
	}
	var found []Failure
	var unhealthy map[string]string // looked up where there is something to explain
	for _, a := range p.state.Failed() {
		if !p.failureHistory.knows(a) {
			if unhealthy == nil {
				unhealthy = p.state.Unhealthy()
			}
			found = append(found, notAfter(failure.Diagnose(a, p.state.OwnGPUs(a), p.state.NodeName(a.Node), unhealthy), now))
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.SortFunc(found, func(a, b Failure) int { return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Alloc, b.Alloc)) })
	found = p.failureHistory.newestJudgeable(found)
	for _, f := range found {
		p.hooks.Meter.Failed(string(f.Cause))
		p.log.Warn("allocation failed", "job", f.Job, "namespace", f.Namespace, "node", f.Node, "cause", f.Cause, "reason", f.Reason)
	}
	successes := p.state.Successes()
	for i := range successes {
		successes[i].At = earlier(successes[i].At, now)
	}
	before := p.failureHistory.quarantine
	spared, err := p.failureHistory.note(ctx, p.nomad, found, failure.Evidence{Successes: successes, Models: p.state.GPUModels()}, now)
	for _, s := range spared {
		p.log.Warn("a GPU is suspect, but the quarantine for failing jobs is full", "gpu", s.GPU, "reason", s.Reason)
	}
	if err == nil {
		p.emitFailures(found, before)
	}
	return err
}

// Try is a member that failed, and in which of the job's tries.
type Try struct {
	Try int `json:"try"`
	Failure
}

// tries are the members of a job that failed, as far as Nomad or the placer
// remembers them. A member belongs to the next try if it was placed after the first
// member of the try before had ended: the members of one try are placed together.
func (p *Placer) tries(k nomad.JobKey) []Try {
	var found []Failure
	var unhealthy map[string]string // looked up where there is something to explain
	known := map[string]bool{}
	for _, f := range p.failureHistory.failures {
		if f.Namespace == k.Namespace && f.Job == k.ID {
			found, known[f.Alloc] = append(found, f), true
		}
	}
	for _, a := range p.state.AllocsOf(k) {
		if (a.Client == api.AllocClientStatusFailed || a.Client == api.AllocClientStatusLost) && !known[a.ID] && len(a.GPUs) > 0 {
			if unhealthy == nil {
				unhealthy = p.state.Unhealthy()
			}
			found = append(found, failure.Diagnose(a, p.state.OwnGPUs(a), p.state.NodeName(a.Node), unhealthy))
		}
	}
	slices.SortFunc(found, func(a, b Failure) int {
		return cmp.Or(a.Placed.Compare(b.Placed), a.At.Compare(b.At), cmp.Compare(a.Alloc, b.Alloc))
	})
	var out []Try
	var ended time.Time // when the first of the try did
	for i, f := range found {
		t := Try{1, f}
		if i > 0 {
			if t.Try = out[i-1].Try; f.Placed.After(ended) {
				t.Try++
			}
		}
		if i == 0 || t.Try != out[i-1].Try || f.At.Before(ended) {
			ended = f.At
		}
		out = append(out, t)
	}
	return out
}

// notAfter is the failure with times that are not after now. The servers' clock may be
// ahead of ours: what happens a year from now would count for a year.
func notAfter(f Failure, now time.Time) Failure {
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
