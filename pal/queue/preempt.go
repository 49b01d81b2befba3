// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// preemptFor stops running gangs of worse levels so that a waiting one can
// start, if that is enough: the worst level first, within a level the one that
// started last. Those whose GPUs the gang would not take are spared.
func (p *pass) preemptFor(e *entry) bool {
	if !p.opt.Preempt || p.barring(e) != nil {
		return false
	}
	return p.stopEnough(e, p.unprotected(e, p.victims(e))) ||
		p.opt.Order == Adaptive && p.stopEnough(e, p.unprotected(e, p.narrower(e))) || p.reclaim(e)
}

// stopEnough stops as many of the victims as it takes for the gang to start,
// first to last; none if all are not enough.
func (p *pass) stopEnough(e *entry, victims []*entry) bool {
	enough := p.c.FreeGPUs()
	for _, v := range victims {
		enough += v.gpus
	}
	if enough < e.gpus {
		return false
	}
	var pl pal.Placement
	var back []func()
	defer func() { again(back) }()
	ok, gone, next := false, 0, 1
	for gone < len(victims) && !ok {
		for ; gone < len(victims) && (p.c.FreeGPUs() < e.gpus || next > 0); gone++ {
			back = append(back, p.vacate(victims[gone]))
			next--
		}
		if p.c.FreeGPUs() >= e.gpus {
			pl, ok = p.place(e)
		}
		next = 1 + gone/4 // fragmented: not after each of many
	}
	again(back)
	back = nil
	return ok && p.claim(e, pl, victims[:gone])
}

// minGain is how many times the GPUs of those stopped a wide gang must have to
// stop gangs of its own level.
const minGain = 3

// narrower picks, for a wide gang of the top level, gangs of that level whose
// few GPUs are all that it lacks: stopping them puts more GPUs to work. A wide
// gang would otherwise wait for its small equals while GPUs idle. Nobody can be
// stopped for the same reason in turn, since each time more GPUs work.
func (p *pass) narrower(e *entry) []*entry {
	if p.level(e, p.now) < topLevel {
		return nil
	}
	var vs []*entry
	for _, v := range p.victimsByLevel() {
		if v.level < topLevel {
			break
		}
		if v.state == running && minGain*v.gpus <= e.gpus {
			vs = append(vs, v.entry)
		}
	}
	slices.SortFunc(vs, func(a, b *entry) int {
		if c := cmp.Compare(a.gpus, b.gpus); c != 0 {
			return c
		}
		return cmp.Compare(b.startedAt, a.startedAt)
	})
	lack, stopped := e.gpus-p.c.FreeGPUs(), 0
	var chosen []*entry
	for lack > stopped && len(vs) > 0 {
		i, _ := slices.BinarySearchFunc(vs, lack-stopped, func(v *entry, n int) int { return v.gpus - n })
		i = min(i, len(vs)-1) // the narrowest that is enough, or the widest
		chosen, stopped = append(chosen, vs[i]), stopped+vs[i].gpus
		vs = slices.Delete(vs, i, i+1)
	}
	if lack > stopped || minGain*stopped > e.gpus {
		return nil
	}
	return chosen
}

// victims lists who may be stopped for a gang, first to go first.
func (p *pass) victims(e *entry) []*entry {
	vs := p.victimsByLevel()
	level := p.level(e, p.now)
	n, _ := slices.BinarySearchFunc(vs, level, func(v victim, level int) int {
		if v.level > level {
			return -1
		}
		return 1
	})
	return p.stillRunning(vs[:n])
}

// anyVictims lists who may be stopped for an overdue gang.
func (p *pass) anyVictims() []*entry { return p.stillRunning(p.victimsByLevel()) }

// victim is a gang that may be stopped.
type victim struct {
	*entry
	level int
}

// victimsByLevel lists who may be stopped, first to go first; it is made once in a
// pass.
func (p *pass) victimsByLevel() []victim {
	if p.victimsListed {
		return p.listed
	}
	p.victimsListed = true
	for _, v := range p.running {
		if v.state == running && v.job.Preemptible && !v.granted && p.settled(v) {
			p.listed = append(p.listed, victim{v, p.level(v, p.now)})
		}
	}
	slices.SortFunc(p.listed, func(a, b victim) int {
		if c := cmp.Compare(b.level, a.level); c != 0 {
			return c
		}
		if c := cmp.Compare(b.startedAt, a.startedAt); c != 0 {
			return c
		}
		return cmp.Compare(b.seq, a.seq)
	})
	return p.listed
}

// stillRunning are those that nobody has stopped in this pass.
func (p *pass) stillRunning(vs []victim) []*entry {
	es := make([]*entry, 0, len(vs))
	for _, v := range vs {
		if v.state == running {
			es = append(es, v.entry)
		}
	}
	return es
}

// settled says whether a gang has run long enough to be stopped or moved.
func (p *pass) settled(v *entry) bool { return p.now >= v.safeUntil }

// minRuns is how many times its restart cost a gang runs before it is stopped.
const minRuns = 2

// claim decides the preemption: those of the victims stop whose GPUs are
// taken, and nobody else gets what they free. It is false where none would be.
func (p *pass) claim(e *entry, pl pal.Placement, victims []*entry) bool {
	wanted := map[int]bool{}
	for _, u := range pl.GPUs() {
		wanted[u] = true
	}
	c := &claim{by: e, placement: pl}
	for _, v := range victims {
		if slices.ContainsFunc(v.placement.GPUs(), func(u int) bool { return wanted[u] }) {
			v.state = stopping
			c.victims = append(c.victims, v)
			p.actions = append(p.actions, Action{Kind: Preempt, Job: v.job.ID, For: e.job.ID})
		}
	}
	if len(c.victims) == 0 {
		return false
	}
	p.Line.claims = append(p.Line.claims, c)
	p.keep(pl)
	return true
}

// migrate moves gangs whose expected gain is more than twice what the move
// costs, in the order in which they started, while there are GPUs for it.
// A move frees as many GPUs as it takes, so only placement suffers while
// somebody waits.
func (p *pass) migrate() {
	if p.head != nil && !p.opt.Near || p.c.FreeGPUs() == 0 {
		return
	}
	for _, e := range slices.Clone(p.running) {
		if e.state != running || !e.job.Migratable || !p.settled(e) || e.placement.Cost() <= 1 {
			continue
		}
		if p.opt.Exclusive && e.stayed == p.version || p.hopeless(e) {
			continue
		}
		e.stayed = p.version
		if pl, ok := p.better(e); ok {
			p.moveTo(e, pl)
		}
	}
}

// hopeless says whether not even the best placement on the empty cluster would pay
// a move.
func (p *pass) hopeless(e *entry) bool {
	left := float64(p.remaining(e, p.now))
	return left*(e.placement.Cost()-p.leastCost(e)) <= 2*float64(e.job.RestartCost)
}

// better looks for a placement that pays the move.
func (p *pass) better(e *entry) (pal.Placement, bool) {
	back := p.vacate(e)
	pl, ok := p.place(e)
	back()
	if !ok || pl.Cost() >= e.placement.Cost() {
		return pl, false
	}
	left := float64(p.remaining(e, p.now))
	gain := time.Duration(left * (e.placement.Cost() - pl.Cost()))
	return pl, gain > 2*e.job.RestartCost
}

func (p *pass) moveTo(e *entry, pl pal.Placement) {
	e.state, e.target = moving, pl
	p.pending = append(p.pending, e)
	p.keep(pl)
	p.actions = append(p.actions, Action{Kind: Migrate, Job: e.job.ID, Found: pal.Found{Placement: pl}})
}
