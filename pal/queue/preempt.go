// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
)

// preemptFor stops running gangs of worse levels so that a waiting one can
// start, if that is enough: the worst level first, within a level the one that
// started last. Those whose GPUs the gang would not take are spared. If levels do not
// help, a tenant's quota may, and if neither does, both together with what elastic gangs give back.
func (p *pass) preemptFor(e *entry) bool {
	if !p.opt.Preempt || p.barring(e) != nil {
		return false
	}
	level := p.level(e, p.now)
	return p.stopEnough(e, p.victimsFor(e, level, level)) || p.reclaim(e) || p.stopAndShrink(e, level)
}

// victimsFor are the gangs of levels above one that may be stopped for the gang, which is of the level.
func (p *planner) victimsFor(e *entry, level, above int) *victims {
	vs := p.above(above)
	vs.freed = freedGPUs{}
	if (p.tree.quotas || p.tenantsFirst()) && level != math.MinInt {
		vs.spare = func(v *entry) bool {
			if !p.mayPreempt(v, e, level, vs.freed) {
				return true
			}
			vs.freed.add(v, v.gpus-vs.gives(v))
			return false
		}
	}
	return vs
}

// levelFor is a running gang's level as a waiting one sees it. With fair share, whose point is that
// no tenant gets more by asking louder, that of another tenant counts as if their priorities were the same,
// unless these are the order.
func (p *planner) levelFor(e, v *entry, its int) int {
	if p.tenantsFirst() && v.of.tenant != e.of.tenant {
		its += (p.behind(e) - p.behind(v)) * orderLevels
	}
	return its
}

// mayPreempt reports whether a gang that is at a level may be stopped for a waiting one of the level. A turn
// outranks levels and quotas. Else two of three must hold: the level is a better one, the waiting one's
// tenant stays within its quota, and the other's is above its own.
func (p *planner) mayPreempt(v, e *entry, level int, freed freedGPUs) bool {
	return level == math.MinInt || p.outranks(p.levelFor(e, v, v.level.level) > level, v, e, freed)
}

func (ts *tenancy) tenantsFirst() bool { return ts.opt.FairShare && ts.opt.Order != Priority }

// stopAndShrink stops gangs for one where that is only enough with what elastic ones give back, or
// where it takes gangs of worse levels and of tenants above their quotas.
func (p *pass) stopAndShrink(e *entry, level int) bool {
	vs := p.together(e, level)
	return (len(vs.lenders) > 0 || p.claimOf(e) > 0) && p.stopEnough(e, vs)
}

// together are all gangs that may be stopped for one of the level, or give members back first.
func (p *planner) together(e *entry, level int) *victims {
	above := level
	if p.claimOf(e) > 0 { // it may take back what is its tenant's
		above = math.MinInt
	}
	vs := p.victimsFor(e, level, above)
	vs.lenders, _ = p.lenders(e, level)
	p.longestFirst(vs.lenders)
	vs.keep = map[*entry]int{}
	for _, v := range vs.lenders {
		vs.keep[v] = p.keeps(v, e, level, vs.freed)
	}
	return vs
}

// stopEnough stops as many of the victims as it takes for the gang to start without delaying
// the head, first to last; none if all are not enough. In the what-if they go until the count of
// free GPUs is enough, and then, while these are too scattered, a quarter more at a time:
// a search after each would cost as many searches as victims.
func (p *pass) stopEnough(e *entry, vs *victims) bool {
	back := p.vacateLeaving(e)
	defer func() { undoAll(back) }()
	if p.c.FreeGPUs()+vs.atMost() < e.gpus {
		return false
	}
	p.foreseeHead(e)
	for _, v := range vs.lenders {
		back = append(back, p.vacateMembers(v, vs.keep[v], len(v.placement.Members)))
	}
	var f pal.Found
	var gone []*entry
	for ok, next := false, 1; !ok; next = 1 + len(gone)/4 {
		before := len(gone)
		for ; p.c.FreeGPUs() < e.gpus || next > 0; next-- {
			v := vs.next()
			if v == nil {
				break
			}
			gone, back = append(gone, v), append(back, p.vacate(vs.rest(v)))
		}
		if len(gone) == before || p.c.FreeGPUs() < e.gpus {
			return false
		}
		f, ok = p.backfill(e)
	}
	undoAll(back)
	back = nil
	return p.claim(e, f.Placement, vs, gone)
}

// takeOver decides that a gang gets the GPUs of gangs that are being stopped, or made smaller, for
// nobody any more: who they were for is gone, or the cluster was rebuilt.
func (p *pass) takeOver(e *entry) bool {
	if len(p.leaving) == 0 {
		return false
	}
	back := p.vacateLeaving(e)
	f, ok := p.backfill(e)
	undoAll(back)
	return ok && p.claim(e, f.Placement, &victims{}, nil)
}

// vacateLeaving frees these GPUs in the what-if; it returns what takes them again.
func (p *planner) vacateLeaving(e *entry) (back []func()) {
	if len(p.leaving) > 0 {
		p.foreseeHead(e)
	}
	for _, v := range p.leaving {
		back = append(back, p.vacateMembers(v, len(v.target.Members), len(v.placement.Members)))
	}
	return back
}

// ranLongEnough reports whether a gang has run long enough to be stopped or moved, and not ended, when one
// would start that GPUs are looked for.
func (p *finder) ranLongEnough(v *entry) bool {
	at := p.startTime()
	return at >= v.safeUntil && v.atCheckpoint(at) && (at == p.now || v.expectedEnd > at)
}

// minRuns is how many times its restart cost a gang runs before it is stopped: so stops
// and moves cost it half of its run time at most.
const minRuns = 2

// claim decides the preemption: those stop whose GPUs are taken, and of elastic gangs the members end that
// it takes to get these, where that is enough.
func (p *pass) claim(e *entry, pl pal.Placement, vs *victims, gone []*entry) bool {
	from := slices.Clone(gone)
	for _, v := range vs.lenders {
		if !slices.Contains(gone, v) {
			from = append(from, v)
		}
	}
	return p.takeFrom(&claim{by: e, placement: pl}, from, func(v *entry, wanted map[int]bool) (Action, bool) {
		if vs.gives(v) > 0 && !touches(vs.rest(v).placement, wanted) {
			return p.giveBack(v, wanted)
		}
		return Action{Kind: Preempt}, touches(v.placement, wanted)
	})
}

// takeFrom decides a claim: what ask says becomes of the victims, and nobody else gets what
// they free, nor what those free that leave anyway. It is false, and nobody is stopped, if the
// placement needs GPUs of none: these are free, and the gang only does not get them because
// they are kept for the head.
func (p *pass) takeFrom(c *claim, victims []*entry, ask func(v *entry, wanted map[int]bool) (Action, bool)) bool {
	wanted := setOf(c.placement.GPUs())
	p.leaving = slices.DeleteFunc(p.leaving, func(v *entry) bool {
		takes := touches(v.placement, wanted)
		if takes {
			c.victims = append(c.victims, v)
		}
		return takes
	})
	for _, v := range victims {
		if a, ok := ask(v, wanted); ok {
			v.state = stopping
			v.countFreeing()
			c.victims = append(c.victims, v)
			if a.Kind == Preempt {
				v.stops++
			}
			a.Job, a.For = v.job.ID, c.by.job.ID
			p.actions = append(p.actions, a)
		}
	}
	if len(c.victims) == 0 {
		return false
	}
	p.enter(c)
	p.decided++
	c.held = p.keep(c.placement)
	return true
}
