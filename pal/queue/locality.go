// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// muchFarther is how much worse than possible a placement's cost must be for a
// gang to wait for a better one.
const muchFarther = 1.2

// waitsForLocality reports until when the gang should rather wait for GPUs closer
// together than start on the placement, and whether that lies ahead (delay scheduling,
// Zaharia 2010). Its turn, once it is overdue, does not ask.
//
// It waits from when it was put into the queue, at most as long as its expected run is
// shorter on the best GPUs: then even a wait in vain costs it no more than twice what it
// could lose by starting at once. If its speeds on GPU models are known, what it keeps from others
// counts as its own time does (see [pal.Market]), and it waits from when it was first offered GPUs
// that it did not take. One that may move waits a quarter of that, as it can
// start now and move when better GPUs come free.
func (p *finder) waitsForLocality(e *entry, pl pal.Placement) (until time.Duration, waits bool) {
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

// holdsOut decides the same, and notes it: [Queue.Wake] asks for the next pass when the first such
// wait ends.
func (p *finder) holdsOut(e *entry, pl pal.Placement) bool {
	until, waits := p.waitsForLocality(e, pl)
	if waits {
		e.offered = e.offeredFrom(p.now)
	}
	if waits && (p.localityUntil <= p.now || until < p.localityUntil) {
		p.localityUntil = until
	}
	return waits
}

// waitsForCloser reports whether the gang waits for GPUs closer together, or faster, at all.
func (e *entry) waitsForCloser(opt *Options) bool {
	return !e.job.Anywhere && (e.job.LocalityWait > 0 || opt.LocalityWait)
}

// mayUseOutlier reports whether the gang, of one GPU, may run on one that is avoided if no other comes free: a
// wider one would have all its others wait for that one.
func (p *finder) mayUseOutlier(e *entry) bool {
	return e.gpus == 1 && e.elastic == nil && !e.job.Endless && p.opt.OutlierThreshold > 0 && p.opt.LocalityWait && !e.job.Anywhere
}

// onOutlier looks for such a GPU, for a gang that has waited for others for as long as the better GPU
// would save.
func (p *planner) onOutlier(e *entry) (pal.Found, bool) {
	defer p.anyGPU(e)()
	f, ok := p.backfill(e)
	return f, ok && !p.holdsOut(e, f.Placement)
}

// anyGPU has outliers not be avoided for the gang until the function that it returns is called.
func (p *finder) anyGPU(e *entry) (back func()) {
	e.within = pal.PMScore(math.Inf(1))
	return func() { e.within = 0 }
}

// leastCost is the cost that the gang would have if all of ours had ended that ends; of a gang
// that runs forever itself, and may be moved, if nothing of ours ran. It is worked out once per
// kind of gang. Where it would not fit even so, as while nodes are away, there is no
// telling, and nothing is kept.
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
