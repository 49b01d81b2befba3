// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// Record is what is kept of the last decision on a job: see [gang.Record].
type Record = gang.Record

// readRecord reads what was recorded for a job; nil where nothing was.
func readRecord(ctx context.Context, c *nomad.Client, k nomad.JobKey) (*Record, error) {
	r, err := store.In(c).Decision(k).Read(ctx)
	if !r.There {
		return nil, err
	}
	return &r.Of, err
}

// writeRecord records a decision.
func (p *Placer) writeRecord(ctx context.Context, r Record) error {
	return store.In(p.nomad).Decision(nomad.JobKey{Namespace: r.Namespace, ID: r.Job}).Write(ctx, r)
}

// save records decisions that are due. What cannot be written waits, and is tried
// again at growing intervals: placing goes on without.
func (p *Placer) save(ctx context.Context, now time.Time) {
	if due := p.decisionsDue(now); due > 0 {
		err := p.writeDecisions(ctx, due)
		p.trouble(recordingDecisions, err)
		p.again = p.again || err == nil && len(p.unsaved) > 0
	}
	if p.mayTry(recordingRunTimes, now) {
		p.trouble(recordingRunTimes, p.saveRunHistory(ctx, now, false))
	}
	if p.mayTry(recordingAfter, now) {
		p.trouble(recordingAfter, p.writeFinished(ctx))
	}
	if p.mayTry(recordingUsage, now) {
		p.trouble(recordingUsage, p.saveUsage(ctx, now, false))
	}
}

// writeDecisions records so many decisions at most.
func (p *Placer) writeDecisions(ctx context.Context, most int) error {
	calls, done := p.decisionWrites(ctx, most)
	inParallel(calls)
	return done()
}

// saveAll records what is left when the placer ends.
func (p *Placer) saveAll() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := p.checkLast(ctx); err != nil {
		p.log.Warn("cannot check the last registrations", "error", err)
	}
	for _, t := range p.sorted() {
		if t.Unsaved && t.Record != nil {
			p.unsaved = append(p.unsaved, *t.Record)
		}
	}
	if err := p.writeDecisions(ctx, len(p.unsaved)); err != nil {
		p.log.Warn("some decisions are not recorded", "error", err)
	}
	if err := p.saveRunHistory(ctx, p.tick(), true); err != nil {
		p.log.Warn("the run times learned in the last minute are lost", "error", err)
	}
	if err := p.saveUsage(ctx, p.now, true); err != nil {
		p.log.Warn("the GPU time that namespaces used in the last minutes is lost", "error", err)
	}
}
