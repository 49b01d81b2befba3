// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
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
func (p *pass) waitsForBetterGPUs(e *entry, pl pal.Placement) (until time.Duration, waits bool) {
	until, _, waits = p.declines(e, pl)
	return until, waits
}

// declines does the same as waitsForBetterGPUs. It also returns when to decide again: when other
// gangs should have freed better GPUs.
func (p *pass) declines(e *entry, pl pal.Placement) (until, again time.Duration, waits bool) {
	if !e.mayWaitForBetter(p.opt) {
		return 0, 0, false
	}
	have, best := pl.Cost(), p.leastCost(e)
	if have < muchWorse*best {
		return 0, 0, false
	}
	limit := stretched(p.remaining(e, p.now), (have-best)*e.slower())
	if p.opt.Migrate && e.job.Migratable {
		limit /= 4
	}
	until = e.declinedSince(p.now) + limit
	again, waits = p.freed(e, have, until)
	return until, again, waits
}

// freed returns when better GPUs should come free: GPUs on which the gang ends sooner, although it
// waits for them, than if it starts now at the cost `have`. ok is false if this is not expected
// before `until`. Gangs ahead may take these GPUs first, so the result is optimistic.
func (p *pass) freed(e *entry, have float64, until time.Duration) (at time.Duration, ok bool) {
	work := p.remaining(e, p.now)
	p.whatIf(func() {
		for _, o := range p.nextEnds() {
			if o.expectedEnd >= until || ok {
				return
			}
			p.free(p.c, o, 0, len(o.placement.Members))
			pl, fits := p.place(e)
			if fits && stretched(work, (have-pl.Cost())*e.slower()) > o.expectedEnd-p.now {
				at, ok = o.expectedEnd+time.Second, true
			}
		}
	})
	return at, ok
}

// mostEnds is the maximum number of gangs whose end freed considers. On a large cluster, many gangs
// end before a wait stops saving time, and each end costs a search.
const mostEnds = 8

// nextEnds returns the gangs that should end next, the earliest first: gangs that run, and gangs
// whose start is decided.
func (p *pass) nextEnds() []*entry {
	next := slices.DeleteFunc(slices.Clone(p.all), func(o *entry) bool { return o.state != running && o.state != starting || !p.ends(o) })
	slices.SortFunc(next, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.expectedEnd, b.expectedEnd), cmp.Compare(a.seq, b.seq))
	})
	return next[:min(len(next), mostEnds)]
}

// holdsOut returns the result of waitsForBetterGPUs. The wait is also recorded, in the gang and for
// [Queue.Wake].
func (p *pass) holdsOut(e *entry, pl pal.Placement) bool {
	_, again, waits := p.declines(e, pl)
	if waits {
		e.wait.declined = e.declinedSince(p.now)
	}
	if waits && (p.localityUntil <= p.now || again < p.localityUntil) {
		p.localityUntil = again
	}
	return waits
}

// declinedSince returns when the gang first declined GPUs: `now` if it has not declined any.
func (e *entry) declinedSince(now time.Duration) time.Duration {
	if e.wait.declined < 0 {
		return now
	}
	return e.wait.declined
}

// mayWaitForBetter reports whether the gang is allowed to wait for GPUs that are faster or closer
// together.
func (e *entry) mayWaitForBetter(opt *Options) bool {
	return !e.job.Anywhere && !e.elastic() && opt.LocalityWait
}

// mayUseOutlier reports whether the gang can run on an outlier after it has waited for another GPU.
// The result is true only for gangs of one GPU.
func (p *pass) mayUseOutlier(e *entry) bool {
	return e.gpus == 1 && !e.elastic() && !e.job.Endless && p.opt.OutlierThreshold > 0 && e.mayWaitForBetter(p.opt)
}

// onOutlier searches like backfill, but includes outliers. As long as the gang should wait for a
// better GPU (see holdsOut), onOutlier returns false.
func (p *pass) onOutlier(e *entry) (pal.Found, bool) {
	e.within = pal.PMScore(math.Inf(1))
	defer func() { e.within = 0 }()
	f, ok := p.backfill(e)
	return f, ok && !p.holdsOut(e, f.Placement)
}
