// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
)

// migrate moves gangs to free GPUs if the expected gain is more than twice the cost of the move.
// The factor is two because the gain is a guess. While a head waits, gangs move only if
// LocalityWait is set, because a move can leave slower or more distant GPUs for the head.
func (p *pass) migrate() {
	if p.head != nil && !p.opt.LocalityWait || p.c.FreeGPUs() == 0 {
		return
	}
	for _, e := range slices.Clone(p.running) {
		if e.state != running || !e.job.Migratable || e.settled || !p.ranLongEnough(e) || e.placement.Cost() <= 1 {
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

// hopeless reports whether no move can pay, not even to the best GPUs of an empty cluster.
func (p *pass) hopeless(e *entry) bool {
	worse := e.placement.Cost() - p.leastCost(e)
	if worse <= 0 {
		return true
	}
	left := float64(p.remaining(e, p.now))
	return left*e.slower*worse <= 2*float64(e.job.RestartCost)
}

// better returns a placement that is worth moving the gang to. If there is none, it returns false.
// The gang's own GPUs count as free.
func (p *pass) better(e *entry) (pal.Placement, bool) {
	back := p.vacate(e)
	pl, ok := p.place(e)
	back()
	if !ok || pl.Cost() >= e.placement.Cost() {
		return pl, false
	}
	gain := stretched(p.remaining(e, p.now), e.slower*(e.placement.Cost()-pl.Cost()))
	return pl, gain > 2*e.job.RestartCost
}

// moveTo decides that a gang moves or grows to the placement. Until the caller reports the outcome,
// the gang holds both its old and its new GPUs.
func (p *pass) moveTo(e *entry, kind Kind, pl pal.Placement) {
	e.state, e.target = moving, pl
	p.pending = append(p.pending, e)
	p.holdToEnd(pl)
	p.actions = append(p.actions, Action{Kind: kind, Job: e.job.ID, Found: pal.Found{Placement: pl}})
}
