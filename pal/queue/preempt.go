// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"github.com/nomad-pal/nomad-pal/pal"
)

// stopFor makes elastic gangs give back members and stops running gangs, so that a waiting gang of the
// given level can start. It reports whether it did. The victims go in their order (see victims) until
// the gang can start without delaying the head. If all victims together are not enough, none of them
// goes; if their GPUs are not needed, they keep running. If enough GPUs would be free but too
// scattered, a quarter more victims are added before the next search.
func (p *pass) stopFor(e *entry, level int) bool {
	vs := p.victimsFor(e, level)
	if p.barring(e) != nil || p.c.FreeGPUs()+vs.atMost() < e.gpus || p.fitsOnceOthersEnd(e) {
		return false
	}
	var back []func()
	defer func() { undoAll(back) }()
	p.foreseeHead(e)
	var gone []*entry
	for steps, next := 0, 1; ; next = 1 + steps/4 {
		before := steps
		for ; p.c.FreeGPUs() < e.gpus || next > 0; next-- {
			v, keeps, had := vs.next()
			if v == nil {
				break
			}
			if had == len(v.placement.Members) {
				gone = append(gone, v)
			}
			back = append(back, p.vacateMembers(v, keeps, had))
			steps++
		}
		if steps == before || p.c.FreeGPUs() < e.gpus {
			return false
		}
		if f, ok := p.backfill(e); ok {
			undoAll(back)
			back = nil
			return p.claim(e, f.Placement, gone)
		}
	}
}

// fitsOnceOthersEnd reports whether a waiting gang fits as soon as gangs have ended that already stop,
// but for no other gang: the user stopped them, or an earlier placer did. Then no further gang is
// stopped for it.
func (p *pass) fitsOnceOthersEnd(e *entry) (ok bool) {
	if len(p.ending) == 0 {
		return false
	}
	p.foreseeHead(e)
	var back []func()
	for _, v := range p.ending {
		back = append(back, p.vacateMembers(v, len(v.target.Members), len(v.placement.Members)))
	}
	_, ok = p.backfill(e)
	undoAll(back)
	return ok
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

// tenantsFirst reports whether fair shares count before priorities.
func (ts *tenancy) tenantsFirst() bool { return ts.opt.FairShare }

// ranLongEnough reports whether a running gang can be stopped or moved at startTime: it has run
// long enough, is at a checkpoint, and is not expected to have ended.
func (p *finder) ranLongEnough(v *entry) bool {
	at := p.startTime()
	return at >= v.safeUntil && v.atCheckpoint(at) && (at == p.now || v.expectedEnd > at)
}

// A gang runs for at least minRuns × its restart cost before it can be stopped or moved. So
// restarts cost at most half of a gang's run time.
const minRuns = 2

// claim decides the preemption: it records the claim of e, and stops the victims that hold a GPU of
// the placement. If a victim can give back the members from the first such GPU on, only these end,
// because Nomad ends the last members first.
func (p *pass) claim(e *entry, pl pal.Placement, victims []*entry) bool {
	c, wanted := &claim{by: e, placement: pl}, setOf(pl.GPUs())
	for _, v := range victims {
		n := firstOn(v.placement, wanted)
		if n < 0 {
			continue
		}
		a := Action{Kind: Preempt, Job: v.job.ID, For: e.job.ID}
		if v.hasLent() && n >= v.job.Least {
			v.target = pal.Predict(p.c, v.sized(n), v.placement.Members[:n:n])
			a.Kind, a.Found = Resize, pal.Found{Placement: v.target}
		}
		v.state = stopping
		v.countFreeing()
		c.victims = append(c.victims, v)
		p.actions = append(p.actions, a)
	}
	if len(c.victims) == 0 {
		return false
	}
	enter(p.Queue, c)
	p.decided++
	p.holdToEnd(c.placement)
	return true
}
