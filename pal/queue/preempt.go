// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"math"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
)

// preemptFor stops running gangs so that a waiting gang can start, and reports whether it did. If
// no choice of victims frees enough GPUs, no gang is stopped. First it tries gangs of worse levels:
// the worst level first and, within a level, the gang that started last. If that is not enough, it
// tries to reclaim the tenant's quota (see reclaim). Last, preemptFor combines these two steps, and
// makes elastic gangs give back members. Gangs whose GPUs are not needed keep running.
func (p *pass) preemptFor(e *entry) bool {
	if !p.opt.Preempt || p.barring(e) != nil || p.fitsOnceOthersEnd(e) {
		return false
	}
	level := p.level(e, p.now)
	return p.stopEnough(e, p.victimsFor(e, level, level)) || p.reclaim(e) || p.stopAndShrink(e, level)
}

// fitsOnceOthersEnd reports whether a waiting gang fits as soon as gangs have ended that already stop,
// but for no other gang: the user stopped them, or an earlier placer did. Then no further gang is
// stopped for it. Each of these gangs counts for one waiting gang in a pass.
func (p *pass) fitsOnceOthersEnd(e *entry) bool {
	if p.ending == nil {
		p.ending = []*entry{}
		for _, v := range p.entries { // in any order: all of them end
			if v.state == stopping && v.stopsFor == nil {
				p.ending = append(p.ending, v)
			}
		}
	}
	if len(p.ending) == 0 {
		return false
	}
	p.foreseeHead(e)
	var back []func()
	for _, v := range p.ending {
		back = append(back, p.vacateMembers(v, len(v.target.Members), len(v.placement.Members)))
	}
	f, ok := p.backfill(e)
	undoAll(back)
	if ok {
		on := setOf(f.Placement.GPUs())
		p.ending = slices.DeleteFunc(p.ending, func(v *entry) bool { return touches(v.placement, on) })
	}
	return ok
}

// victimsFor returns the running gangs that can be stopped for the waiting gang e of the given
// level. Only gangs whose level is worse than `above` are victims.
func (p *planner) victimsFor(e *entry, level, above int) *victims {
	vs := p.above(above)
	vs.freed = freedGPUs{}
	if (p.tree.quotas || p.tenantsFirst()) && level != math.MinInt {
		vs.spare = func(v *entry) bool {
			if !p.mayPreempt(v, e, level, vs.freed) {
				return true
			}
			vs.freed.add(v, v.amount(v.gpus-vs.gives(v)))
			return false
		}
	}
	return vs
}

// levelFor converts the level of the running gang v, so that it can be compared with the level of
// the waiting gang e. The parameter `its` is v's own level. Under fair share, the priority does not
// count between gangs of two tenants.
func (p *planner) levelFor(e, v *entry, its int) int {
	if p.tenantsFirst() && v.of.tenant != e.of.tenant {
		its += (p.behind(e) - p.behind(v)) * orderLevels
	}
	return its
}

// mayPreempt reports whether the running gang v can be stopped for the waiting gang e of the given
// level. In a turn (the level is math.MinInt), every gang can be stopped. Otherwise, two of three
// conditions must hold: e's level is better than v's, e's tenant stays within its quota, v's tenant
// is above its quota.
func (p *planner) mayPreempt(v, e *entry, level int, freed freedGPUs) bool {
	return level == math.MinInt || p.outranks(p.levelFor(e, v, v.level.level) > level, v, e, freed)
}

// tenantsFirst reports whether fair shares count before priorities.
func (ts *tenancy) tenantsFirst() bool { return ts.opt.FairShare }

// stopAndShrink makes elastic gangs give back members, and stops gangs of worse levels or of
// tenants above their quotas. It reports whether the waiting gang gets its GPUs.
func (p *pass) stopAndShrink(e *entry, level int) bool {
	vs := p.together(e, level)
	return (len(vs.lenders) > 0 || p.claimOf(e) > 0) && p.stopEnough(e, vs)
}

// together returns the gangs that can be stopped for the waiting gang e of this level. The result
// includes the lenders that give members back before any gang is stopped.
func (p *planner) together(e *entry, level int) *victims {
	above := level
	if p.claimOf(e) > 0 { // it may reclaim its tenant's quota
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

// stopEnough stops victims in their order, until the gang can start without delaying the head. The
// result reports whether the gang can start. If all victims together are not enough, stopEnough
// stops none of them. If enough GPUs would be free but too scattered, a quarter more victims are
// added before the next search.
func (p *pass) stopEnough(e *entry, vs *victims) bool {
	var back []func()
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

// ranLongEnough reports whether a running gang can be stopped or moved at startTime: it has run
// long enough, is at a checkpoint, and is not expected to have ended.
func (p *finder) ranLongEnough(v *entry) bool {
	at := p.startTime()
	return at >= v.safeUntil && v.atCheckpoint(at) && (at == p.now || v.expectedEnd > at)
}

// A gang runs for at least minRuns × its restart cost before it can be stopped or moved. So
// restarts cost at most half of a gang's run time.
const minRuns = 2

// claim decides the preemption: it records the claim of e, and stops the gangs on the placement. If
// a lender has enough members to give back, only these members end.
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

// takeFrom records a claim, and reports whether it did. If no victim holds a GPU of the placement,
// there is no claim. For each possible victim, the function `ask` returns an action, and whether the
// gang must stop or shrink.
func (p *pass) takeFrom(c *claim, victims []*entry, ask func(v *entry, wanted map[int]bool) (Action, bool)) bool {
	wanted := setOf(c.placement.GPUs())
	for _, v := range victims {
		if a, ok := ask(v, wanted); ok {
			v.state = stopping
			v.countFreeing()
			c.victims = append(c.victims, v)
			a.Job, a.For = v.job.ID, c.by.job.ID
			p.actions = append(p.actions, a)
		}
	}
	if len(c.victims) == 0 {
		return false
	}
	p.displace(c.placement, nil)
	enter(p.Queue, c)
	p.decided++
	p.holdToEnd(c.placement)
	return true
}
