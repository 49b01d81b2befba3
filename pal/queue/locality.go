// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// muchWorse says when a wait for a better placement is worthwhile: if the available placement costs
// at least muchWorse times the gang's lowest possible cost.
const muchWorse = 1.2

// waitsForBetterGPUs reports whether the gang should wait for GPUs that are faster or closer
// together, instead of starting on the placement now. The result `until` is the time at which the
// wait ends. The wait is delay scheduling (Zaharia 2010). For an overdue gang in its turn, serveOne
// does not call waitsForBetterGPUs, so this gang does not wait.
//
// The wait begins when the gang was put into the queue, and lasts at most as long as
// [Job.LocalityWait]. If LocalityWait is not set, the wait lasts at most for the time that the best
// GPUs are expected to save, and for a quarter of this time if the gang can be moved later. The gang
// waits only if the placement costs at least muchWorse times as much as the best GPUs. The costs
// include the gang's speed on the GPU model, so a gang waits for a faster model by the same rule.
func (p *finder) waitsForBetterGPUs(e *entry, pl pal.Placement) (until time.Duration, waits bool) {
	if !e.mayWaitForBetter(p.opt) {
		return 0, false
	}
	have, best := pl.Cost(), p.leastCost(e)
	// The limit is higher for reserved GPUs: reservedFirst prefers them even to GPUs that are
	// better by almost the factor muchWorse.
	if have < muchWorse*best || have < muchWorse*muchWorse*best && within(pl, p.reserved(e)) {
		return 0, false
	}
	limit := e.job.LocalityWait
	if limit == 0 {
		limit = stretched(p.remaining(e, p.now), (have-best)*e.slower)
		if p.opt.Migrate && e.job.Migratable {
			limit /= 4
		}
	}
	until = e.waitingSince + limit
	return until, until > p.now
}

// holdsOut returns the result of waitsForBetterGPUs. The wait is also recorded for [Queue.Wake].
func (p *finder) holdsOut(e *entry, pl pal.Placement) bool {
	until, waits := p.waitsForBetterGPUs(e, pl)
	if waits && (p.localityUntil <= p.now || until < p.localityUntil) {
		p.localityUntil = until
	}
	return waits
}

// mayWaitForBetter reports whether the gang is allowed to wait for GPUs that are faster or closer
// together.
func (e *entry) mayWaitForBetter(opt *Options) bool {
	return !e.job.Anywhere && (e.job.LocalityWait > 0 || opt.LocalityWait)
}

// mayUseOutlier reports whether the gang can run on an outlier after it has waited for another GPU.
// The result is true only for gangs of one GPU.
func (p *finder) mayUseOutlier(e *entry) bool {
	return e.gpus == 1 && e.elastic == nil && !e.job.Endless && p.opt.OutlierThreshold > 0 && p.opt.LocalityWait && !e.job.Anywhere
}

// onOutlier searches like backfill, but includes outliers. As long as the gang should wait for a
// better GPU (see holdsOut), onOutlier returns false.
func (p *planner) onOutlier(e *entry) (pal.Found, bool) {
	defer p.anyGPU(e)()
	f, ok := p.backfill(e)
	return f, ok && !p.holdsOut(e, f.Placement)
}

// anyGPU includes outliers in searches for the gang, until `back` is called.
func (p *finder) anyGPU(e *entry) (back func()) {
	e.within = pal.PMScore(math.Inf(1))
	return func() { e.within = 0 }
}

// leastCost returns the gang's lowest possible cost: its cost if only gangs that never end kept
// their GPUs. For a service, leastCost returns the cost if none of the Queue's gangs ran. The cost
// is infinite if the gang would not fit at all.
func (p *finder) leastCost(e *entry) float64 {
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
