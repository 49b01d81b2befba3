// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"github.com/nomad-pal/nomad-pal/pal"
)

// migrate moves gangs to free GPUs if the expected gain is more than twice the cost of the move.
// The factor is two because the gain is a guess. While a head waits, gangs move only if
// LocalityWait is set, because a move can leave slower or more distant GPUs for the head.
func (p *pass) migrate() {
	if p.head != nil && !p.opt.LocalityWait || p.c.FreeGPUs() == 0 {
		return
	}
	for _, e := range p.running {
		if e.state != running || !e.job.Migratable || e.settled || e.placement.Cost() <= 1 || !p.ranLongEnough(e) || !p.gains(e, p.leastCost(e)) {
			continue
		}
		if pl, ok := p.better(e); ok {
			p.moveTo(e, Migrate, pl)
		}
	}
}

// gains reports whether a move of the gang to GPUs of this cost would pay.
func (p *finder) gains(e *entry, cost float64) bool {
	return stretched(p.remaining(e, p.now), e.slower()*max(0, e.placement.Cost()-cost)) > 2*e.job.RestartCost
}

// better returns a placement that is worth moving the gang to. If there is none, it returns false.
// The gang's own GPUs count as free.
func (p *pass) better(e *entry) (pl pal.Placement, ok bool) {
	p.whatIf(func() {
		p.free(p.c, e, 0, len(e.placement.Members))
		pl, ok = p.place(e)
	})
	return pl, ok && p.gains(e, pl.Cost())
}

// moveTo decides that a gang moves or grows to the placement. Until the caller reports the outcome,
// the gang holds both its old and its new GPUs.
func (p *pass) moveTo(e *entry, kind Kind, pl pal.Placement) {
	e.state, e.target = moving, pl
	p.pending = append(p.pending, e)
	p.hold(pl.GPUs())
	p.actions = append(p.actions, Action{Kind: kind, Job: e.job.ID, Found: pal.Found{Placement: pl}})
}
