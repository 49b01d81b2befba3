// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// Record is what is kept of the last decision on a job: see [gang.Record].
type Record = gang.Record

// writeRecord records a decision.
func (p *Placer) writeRecord(ctx context.Context, r Record) error {
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
