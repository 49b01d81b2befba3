// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// writeRecord records a decision.
func (p *Placer) writeRecord(ctx context.Context, r gang.Record) error {
	return store.In(p.nomad).Decision(keyOfRecord(r)).Write(ctx, r)
}

// saveAll records what is left when the placer ends, within two seconds: whoever
// stops the agent does not wait long before they kill it. What is lost is only what explains
// decisions; the decisions themselves are in the jobs.
func (p *Placer) saveAll() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := p.checkLast(ctx); err != nil {
		p.log.Warn("cannot check the last registrations", "error", err)
	}
	for _, t := range p.m.Sorted() {
		if t.Unsaved && t.Record != nil {
			p.unsaved = append(p.unsaved, *t.Record)
		}
	}
	if err := writeNow(ctx, p.records(len(p.unsaved))); err != nil {
		p.log.Warn("some decisions are not recorded", "error", err)
	}
	if err := writeNow(ctx, p.runTimes(p.tick())); err != nil {
		p.log.Warn("the run times learned in the last minute are lost", "error", err)
	}
	if err := writeNow(ctx, p.usageNow(p.m.Time)); err != nil {
		p.log.Warn("the GPU time that namespaces used in the last minutes is lost", "error", err)
	}
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
	if len(p.stale) == 0 || p.backsOff(pruningRecords, now) {
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
