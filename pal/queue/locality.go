// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// muchWorse says when a wait for a better placement is worthwhile: if the available placement costs
// at least muchWorse times the gang's lowest possible cost.
const muchWorse = 1.2

// waitsForBetterGPUs reports whether the gang should wait for GPUs that are faster or closer
// together, instead of starting on the placement now. It waits at most until the time `until`. The
// wait is delay scheduling (Zaharia 2010). For an overdue gang in its turn, serveOne does not call
// waitsForBetterGPUs, so this gang does not wait.
//
// The gang waits if the placement costs at least muchWorse times as much as the best GPUs, and if
// other gangs are expected to free better GPUs soon enough (see freed). The wait begins when the
// gang first declines GPUs. It lasts at most for the time that the best GPUs would save, and for a
// quarter of this time if the gang can be moved later. The costs include the gang's speed on the GPU
// model, so a gang waits for a faster model by the same rule.
func (p *finder) waitsForBetterGPUs(e *entry, pl pal.Placement) (until time.Duration, waits bool) {
	until, _, waits = p.declines(e, pl)
	return until, waits
}

// declines does the same as waitsForBetterGPUs. It also returns when to decide again: when other
// gangs should have freed better GPUs.
func (p *finder) declines(e *entry, pl pal.Placement) (until, again time.Duration, waits bool) {
	if !e.mayWaitForBetter(p.opt) {
		return 0, 0, false
	}
	have, best := pl.Cost(), p.leastCost(e)
	if have < muchWorse*best {
		return 0, 0, false
	}
	limit := stretched(p.remaining(e, p.now), (have-best)*e.slower)
	if p.opt.Migrate && e.job.Migratable {
		limit /= 4
	}
	until = e.declinedSince(p.now) + limit
	again, waits = p.freed(e, have, until)
	return until, again, waits
}

// freed returns when other gangs should have freed GPUs on which the gang ends sooner than it would
// now at the cost `have`, even though it has waited. ok is false if this is not expected before
// `until`. Gangs ahead may take these GPUs first, so the result is optimistic.
func (p *finder) freed(e *entry, have float64, until time.Duration) (at time.Duration, ok bool) {
	var back []func()
	defer func() { undoAll(back) }()
	work := p.remaining(e, p.now)
	for _, o := range p.nextEnds() {
		if o.expectedEnd >= until {
			break
		}
		back = append(back, p.gone(o))
		pl, fits := p.place(e)
		if fits && stretched(work, (have-pl.Cost())*e.slower) > o.expectedEnd-p.now {
			return o.expectedEnd + time.Second, true
		}
	}
	return 0, false
}

// mostEnds is the maximum number of gangs whose end freed considers. On a large cluster, many gangs
// end before a wait stops saving time, and each end costs a search.
const mostEnds = 8

// nextEnds returns the gangs that should end next, the earliest first: gangs that run, and gangs
// whose start is decided.
func (p *finder) nextEnds() (next []*entry) {
	for _, o := range p.byEnd {
		if len(next) == mostEnds {
			break
		}
		if o.state == running && p.ends(o) {
			next = append(next, o)
		}
	}
	for _, o := range p.pending {
		if o.state == starting && p.ends(o) {
			next = append(next, o)
		}
	}
	slices.SortFunc(next, byEnd)
	return next[:min(len(next), mostEnds)]
}

// gone frees the GPUs of a gang that runs or starts, until `back` is called. If a gang's start is not
// reported yet, the cluster has not counted the gang's CPU and memory, so gone does not release them.
func (p *finder) gone(e *entry) (back func()) {
	if e.state != starting || slices.Contains(p.started, e) {
		return p.vacate(e)
	}
	return p.unmark(e.placement.GPUs())
}

// holdsOut returns the result of waitsForBetterGPUs. The wait is also recorded, in the gang and for
// [Queue.Wake].
func (p *finder) holdsOut(e *entry, pl pal.Placement) bool {
	_, again, waits := p.declines(e, pl)
	if waits {
		e.declined = e.declinedSince(p.now)
	}
	if waits && (p.localityUntil <= p.now || again < p.localityUntil) {
		p.localityUntil = again
	}
	return waits
}

// declinedSince returns when the gang first declined GPUs: `now` if it has not declined any.
func (e *entry) declinedSince(now time.Duration) time.Duration {
	if e.declined < 0 {
		return now
	}
	return e.declined
}

// mayWaitForBetter reports whether the gang is allowed to wait for GPUs that are faster or closer
// together.
func (e *entry) mayWaitForBetter(opt *Options) bool {
	return !e.job.Anywhere && e.elastic == nil && opt.LocalityWait
}

// mayUseOutlier reports whether the gang can run on an outlier after it has waited for another GPU.
// The result is true only for gangs of one GPU.
func (p *finder) mayUseOutlier(e *entry) bool {
	return e.gpus == 1 && e.elastic == nil && !e.job.Endless && p.opt.OutlierThreshold > 0 && e.mayWaitForBetter(p.opt)
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
