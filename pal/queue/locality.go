// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// muchFarther is a factor: a gang waits for a better placement only if the one that it can have now
// costs at least this factor times the least possible cost.
const muchFarther = 1.2

// waitsForBetterGPUs returns until when the gang should wait for GPUs that are closer together or
// faster instead of starting on the placement, and whether that time lies ahead (delay scheduling,
// Zaharia 2010). An overdue gang in its turn does not wait.
//
// The wait begins when the gang was put into the queue, and lasts at most as long as the run is
// expected to be shorter on the best GPUs, unless [Job.LocalityWait] is set. So even a wait in vain
// costs at most twice what an immediate start could lose. If the gang's speeds on GPU models are
// known, the time for which it keeps GPUs from others counts too (see [pal.Market]), and the wait
// begins when the gang first declined GPUs. A gang that may move waits a quarter of that, because
// it can start now and move when better GPUs come free.
func (p *finder) waitsForBetterGPUs(e *entry, pl pal.Placement) (until time.Duration, waits bool) {
	if !e.waitsForCloser(p.opt) {
		return 0, false
	}
	have, best := pl.Cost(), p.leastCost(e)
	if len(e.job.Gang.Speeds) > 0 {
		have = p.total(e, pl)
		best, _ = p.bestModel(e)
	}
	if have < muchFarther*best {
		return 0, false
	}
	limit := e.job.LocalityWait
	if limit == 0 {
		limit = stretched(p.remaining(e, p.now), (have-best)*e.slower)
		if p.opt.Migrate && e.job.Migratable {
			limit /= 4
		}
	}
	until = e.offeredFrom(p.now) + limit
	return until, until > p.now
}

// offeredFrom returns the beginning of a gang's wait for better GPUs: the time when it was queued
// or, if its speeds on GPU models are known, when it first declined GPUs. In a long queue a wait
// from submission would soon be over, and it would accept any model.
func (e *entry) offeredFrom(now time.Duration) time.Duration {
	switch {
	case len(e.job.Gang.Speeds) == 0:
		return e.waitingSince
	case e.offered < 0:
		return now
	}
	return e.offered
}

// holdsOut is waitsForBetterGPUs, but also records the end of the wait, so that [Queue.Wake]
// requests a pass when the first such wait ends.
func (p *finder) holdsOut(e *entry, pl pal.Placement) bool {
	until, waits := p.waitsForBetterGPUs(e, pl)
	if waits {
		e.offered = e.offeredFrom(p.now)
	}
	if waits && (p.localityUntil <= p.now || until < p.localityUntil) {
		p.localityUntil = until
	}
	return waits
}

// waitsForCloser reports whether the gang ever waits for GPUs that are closer together, or faster.
func (e *entry) waitsForCloser(opt *Options) bool {
	return !e.job.Anywhere && (e.job.LocalityWait > 0 || opt.LocalityWait)
}

// mayUseOutlier reports whether the gang may run on an outlier after it has waited in vain for
// another GPU. Only gangs of one GPU may: in a wider gang all other members would wait for the
// outlier.
func (p *finder) mayUseOutlier(e *entry) bool {
	return e.gpus == 1 && e.elastic == nil && !e.job.Endless && p.opt.OutlierThreshold > 0 && p.opt.LocalityWait && !e.job.Anywhere
}

// onOutlier includes outliers in the search after the gang has waited for as long as a better GPU
// would save.
func (p *planner) onOutlier(e *entry) (pal.Found, bool) {
	defer p.anyGPU(e)()
	f, ok := p.backfill(e)
	return f, ok && !p.holdsOut(e, f.Placement)
}

// anyGPU lets searches for the gang include outliers until back is called.
func (p *finder) anyGPU(e *entry) (back func()) {
	e.within = pal.PMScore(math.Inf(1))
	return func() { e.within = 0 }
}

// leastCost returns the gang's lowest possible cost after all gangs that end have ended. For a
// service it assumes that none of the Queue's gangs runs. It is computed once per kind of gang. If
// the gang would not fit even then, for example while nodes are away, the cost is infinite and is
// not cached.
func (p *finder) leastCost(e *entry) float64 {
	if len(e.job.Gang.Speeds) > 0 {
		_, c := p.bestModel(e)
		return c
	}
	known, without := &p.kindOf(e).leastCost, p.withoutEnding
	if e.job.Endless {
		without = p.withoutRunning
	}
	c := *known
	if c == 0 {
		defer p.withoutWindows()()
		without(func() {
			pl, fits := p.place(e)
			if c = pl.Cost(); !fits {
				c = math.Inf(1)
				return
			}
			*known = c
		})
	}
	return c
}
