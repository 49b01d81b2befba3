// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// preemptFor stops running gangs of worse levels so that a waiting one can
// start, if that is enough: the worst level first, within a level the one that
// started last. Those whose GPUs the gang would not take are spared. If levels do not
// help, a tenant's quota may.
func (p *pass) preemptFor(e *entry) bool {
	if !p.opt.Preempt || p.barring(e) != nil {
		return false
	}
	vs := p.above(p.level(e, p.now))
	vs.spare = func(v *entry) bool { return p.spared(v, e) }
	return p.stopEnough(e, vs) || p.reclaim(e)
}

// stopEnough stops as many of the victims as it takes for the gang to start,
// first to last; none if all are not enough. In the what-if they go until the count of
// free GPUs is enough, and then, while these are too scattered, a quarter more at a time:
// a search after each would cost as many searches as victims.
func (p *pass) stopEnough(e *entry, vs *victims) bool {
	if p.c.FreeGPUs()+vs.atMost() < e.gpus {
		return false
	}
	var pl pal.Placement
	var back []func()
	defer func() { again(back) }()
	var gone []*entry
	for ok, next := false, 1; !ok; next = 1 + len(gone)/4 {
		before := len(gone)
		for ; p.c.FreeGPUs() < e.gpus || next > 0; next-- {
			v := vs.next()
			if v == nil {
				break
			}
			gone, back = append(gone, v), append(back, p.vacate(v))
		}
		if len(gone) == before || p.c.FreeGPUs() < e.gpus {
			return false
		}
		pl, ok = p.place(e)
	}
	again(back)
	back = nil
	return p.claim(e, pl, gone)
}

// mayBeStopped says whether a gang has run long enough to be stopped or moved.
func (p *pass) mayBeStopped(v *entry) bool { return p.now >= v.safeUntil }

// minRuns is how many times its restart cost a gang runs before it is stopped: so stops
// and moves cost it half of its run time at most.
const minRuns = 2

// claim decides the preemption: those of the victims stop whose GPUs are taken.
func (p *pass) claim(e *entry, pl pal.Placement, victims []*entry) bool {
	return p.takeFrom(&claim{by: e, placement: pl}, victims, func(v *entry, wanted map[int]bool) (Action, bool) {
		return Action{Kind: Preempt}, touches(v.placement, wanted)
	})
}

// takeFrom decides a claim: what ask says becomes of the victims, and nobody else gets what
// they free. It is false, and nobody is stopped, if the placement needs GPUs of none: these
// are free, and the gang only does not get them because they are kept for the head.
func (p *pass) takeFrom(c *claim, victims []*entry, ask func(v *entry, wanted map[int]bool) (Action, bool)) bool {
	wanted := setOf(c.placement.GPUs())
	for _, v := range victims {
		if a, ok := ask(v, wanted); ok {
			v.state = stopping
			c.victims = append(c.victims, v)
			a.Job, a.For = v.job.ID, c.by.job.ID
			p.actions = append(p.actions, a)
		}
	}
	if len(c.victims) == 0 {
		return false
	}
	p.Queue.claims = append(p.Queue.claims, c)
	p.keep(c.placement)
	return true
}

// migrate moves gangs whose expected gain is more than twice what the move costs, while
// there are GPUs for it: twice, because the gain is a guess and the cost is not.
// A move frees as many GPUs as it takes, so nobody who waits has fewer; but those that are
// free then may be worse ones. So moves go on beside a head only under LocalityWait.
func (p *pass) migrate() {
	if p.head != nil && !p.opt.LocalityWait || p.c.FreeGPUs() == 0 {
		return
	}
	for _, e := range slices.Clone(p.running) {
		if e.state != running || !e.job.Migratable || !p.mayBeStopped(e) || e.placement.Cost() <= 1 {
			continue
		}
		if p.opt.Exclusive && e.stayed == p.version || p.hopeless(e) {
			continue
		}
		e.stayed = p.version
		if pl, ok := p.better(e); ok {
			p.moveTo(e, Migrate, pl)
		}
	}
}

// hopeless says whether not even the best placement on the empty cluster would pay
// a move. It saves the search of better for gangs that run well already.
func (p *pass) hopeless(e *entry) bool {
	left := float64(p.remaining(e, p.now))
	return left*e.slower*(e.placement.Cost()-p.leastCost(e)) <= 2*float64(e.job.RestartCost)
}

// better looks for a placement that pays the move, with the gang's own GPUs free.
func (p *pass) better(e *entry) (pal.Placement, bool) {
	back := p.vacate(e)
	pl, ok := p.place(e)
	back()
	if !ok || pl.Cost() >= e.placement.Cost() {
		return pl, false
	}
	left := float64(p.remaining(e, p.now))
	gain := time.Duration(left * e.slower * (e.placement.Cost() - pl.Cost()))
	return pl, gain > 2*e.job.RestartCost
}

// moveTo decides the move, or the growth. Until it is reported the gang has both its old
// and its new GPUs.
func (p *pass) moveTo(e *entry, kind Kind, pl pal.Placement) {
	e.state, e.target = moving, pl
	p.pending = append(p.pending, e)
	p.keep(pl)
	p.actions = append(p.actions, Action{Kind: kind, Job: e.job.ID, Found: pal.Found{Placement: pl}})
}
