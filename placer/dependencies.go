// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"math"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

const (
	// dependencyPoll is the interval at which the placer asks again about a job if no event would
	// report a change, for example in a snapshot. dependencyBatch is the number of jobs about which
	// one cycle asks.
	dependencyPoll  = 5 * time.Second
	dependencyBatch = 256
)

// checkDependencies reads the jobs in pal_after that are due, at most `atMost` of them, and decides
// which jobs still wait for others or for their pal_begin ([model.Tracked.Await]). If a job cannot be
// read, only the jobs that wait for this job keep waiting.
func (p *Placer) checkDependencies(ctx context.Context, now time.Time, atMost int) {
	keys := p.m.DueDependencies(now)
	known := p.m.Dependencies.Known
	p.again, p.changed = p.again || len(keys) > atMost, p.changed || len(keys) > 0
	keys = keys[:min(len(keys), atMost)]
	found, errs := make([]model.Dependency, len(keys)), make([]error, len(keys))
	key := func(k cluster.JobKey) cluster.JobKey { return k }
	inParallel(callsFor(keys, key, func(i int, k cluster.JobKey) {
		found[i], errs[i] = query.ReadDependency(ctx, p.nomad, k, known[k])
	}))
	for i, k := range keys {
		of := found[i]
		if errs[i] != nil {
			of = known[k]
			if of.Ended.IsZero() {
				of.Why = reason.Reason{Kind: reason.AheadUnread, Cause: errs[i].Error()}
			}
		}
		of.Due = now.Add(dependencyPoll)
		switch {
		case errs[i] != nil:
		case of.Heard > 0:
			of.Due = now // in the next cycle, because Nomad will soon show the change
		case p.m.Dependencies.Listens && of.Why.Kind != reason.AheadRuns:
			// If the tasks of a dead job still run, no event would report their end.
			of.Due = time.Unix(math.MaxInt32, 0) // never, unless an event reports a change
		}
		known[k] = of
	}
	for _, t := range p.m.Sorted() {
		t.Await(known, now)
	}
}
