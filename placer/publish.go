// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// Status is the state as of the last cycle.
func (p *Placer) Status() model.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// publish makes the state of this cycle visible. What the waiting ones wait for
// takes a look at everything, so it is worked out once a second at most, and
// takes a twentieth of the time at most.
func (p *Placer) publish(now time.Time) {
	p.warnOfNodes()
	if p.unpublished = now.Sub(p.status.At) < max(time.Second, 20*p.publishing); p.unpublished {
		return
	}
	began := time.Now()
	defer func() { p.publishing = time.Since(began) }()
	s := model.Status{At: now, GPUs: p.m.View.Cluster.NumGPUs(), Free: p.m.View.Cluster.FreeGPUs(), Warnings: slices.Concat(p.warnings, p.ofNodes, p.m.Windows.Warnings(), p.troubled()), Queues: p.m.State.Queues}
	s.InTrouble, s.Allocated, s.Outliers = p.m.CountGPUs(now)
	waits := p.m.WaitsOf(p.m.Queue.Waiting(model.Since(now), p.m.View.Cluster), p.m.View.Cluster)
	for _, t := range p.m.Sorted() {
		p.m.BeginJob(t.Key)
		s.Jobs = append(s.Jobs, p.m.StatusOf(t, waits))
	}
	p.m.EndJob()
	p.mu.Lock()
	p.status = s
	p.mu.Unlock()
}

// Records of jobs that Nomad does not know any more are removed, some with each lot: there
// may be as many as jobs that were ever purged.
const (
	pruneAtOnce = 4 * writes
	pruneWithin = 2 * time.Second
)

// kept are the paths of the records that are not stale.
func (p *Placer) kept() map[string]bool {
	keep := map[string]bool{}
	for k := range p.m.State.Jobs {
		keep[store.DecisionPath(k)] = true
	}
	for k := range p.m.State.Unread {
		keep[store.DecisionPath(k)] = true
	}
	return keep
}

// lookForStale finds the records of jobs that are gone.
func (p *Placer) lookForStale(ctx context.Context) error {
	paths, err := store.In(p.nomad).Decisions().Paths(ctx)
	if err != nil {
		return err
	}
	keep := p.kept()
	p.stale = slices.DeleteFunc(paths, func(path string) bool { return keep[path] })
	return nil
}

// staleDue removes some of them.
func (p *Placer) staleDue(now time.Time) *entry {
	if len(p.stale) == 0 || !p.mayTry(pruningRecords, now) {
		return nil
	}
	keep := p.kept() // a job may have come back
	some := slices.Clone(p.stale[:min(len(p.stale), pruneAtOnce)])
	p.stale = p.stale[len(some):] // those that fail are found again
	some = slices.DeleteFunc(some, func(path string) bool { return keep[path] })
	return &entry{what: pruningRecords, paths: some, then: func(error) {}, write: func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, pruneWithin)
		defer cancel()
		errs, records := make([]error, len(some)), store.In(p.nomad).Decisions()
		var calls []call
		for i, path := range some {
			calls = append(calls, call{do: func() { errs[i] = records.Delete(ctx, path) }})
		}
		inParallel(calls)
		return cmp.Or(errs...)
	}}
}
