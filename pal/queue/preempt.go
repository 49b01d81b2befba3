// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// promised are GPUs for which other gangs are being stopped or shrunk. They are kept for the gang to
// which they are promised until all these gangs have stopped.
type promised struct {
	placement pal.Placement // empty after [Queue.Rebase]
	inTurn    bool          // the gang is overdue, and got the promise in its turn
	saved     time.Duration // the longest wait that stopping one victim has saved so far; see countStop
}

// breakPromise ends a promise, if there is one. The gangs that are being stopped for it still stop.
func (q *Queue) breakPromise(e *entry) {
	if e.promised == nil {
		return
	}
	e.promised = nil
	for _, v := range q.all {
		if v.stopsFor == e.job.ID {
			v.stopsFor = ""
		}
	}
}

// victimsOf returns the gangs that are being stopped or shrunk for the gang.
func (p *pass) victimsOf(e *entry) (all []*entry) {
	for _, v := range p.running {
		if v.stopsFor == e.job.ID {
			all = append(all, v)
		}
	}
	return all
}

// keepPromises starts the gangs for which others have stopped. Until all these have stopped, the GPUs
// are kept. Promises come before the queue, so nobody takes GPUs for which a gang was stopped.
func (p *pass) keepPromises() {
	var ready []*entry
	kept := map[*entry][]int{}
	for _, e := range p.claims {
		gpus := e.promised.placement.GPUs()
		if slices.ContainsFunc(gpus, func(u int) bool { return !p.c.Available(u) && !p.busy(u) }) { // a GPU is out of service
			p.drop(e)
			continue
		}
		kept[e] = p.hold(gpus)
		if len(p.victimsOf(e)) == 0 && !p.full() {
			ready = append(ready, e)
		}
	}
	p.besides(turnGPUs(p.Queue), func() {
		for _, e := range ready {
			unmark(p.c, kept[e])
			if f, ok := p.fitsNow(e); ok {
				e.wait.granted = e.promised.inTurn
				p.promise(e, -1)
				p.start(e, f)
			} else {
				p.drop(e)
			}
		}
	})
	p.claims = slices.DeleteFunc(p.claims, func(e *entry) bool { return e.promised == nil })
}

// drop breaks a promise, whose GPUs no longer count towards limits.
func (p *pass) drop(e *entry) {
	p.promise(e, -1)
	p.breakPromise(e)
}

// fitsNow returns a placement on which a gang can start to which GPUs are promised. The promised GPUs
// do not count in the quotas, because the gang does not need both.
func (p *pass) fitsNow(e *entry) (f pal.Found, ok bool) {
	p.promise(e, -1)
	defer p.promise(e, 1)
	if p.overQuota(e) {
		return f, false
	}
	if f, ok = p.asManyAsFit(e, p.find); !ok {
		return f, false
	}
	f, by := p.sparing(e, f)
	return f, by == nil
}

// stopFor makes elastic gangs give back members and stops running gangs, so that a waiting gang of the
// given level can start. It reports whether it did. The victims go in their order (see victims) until
// the gang can start without delaying the head. If all victims together are not enough, none of them
// goes; if their GPUs are not needed, they keep running. If enough GPUs would be free but too
// scattered, a quarter more victims are added before the next search.
func (p *pass) stopFor(e *entry, level int) (stopped bool) {
	vs := p.victimsFor(e, level)
	if p.barring(e) != nil || p.c.FreeGPUs()+vs.atMost() < e.gpus || p.fitsOnceOthersEnd(e) {
		return false
	}
	p.foreseeHead(e)
	var gone []*entry
	var on pal.Placement
	p.whatIf(func() {
		for steps, next := 0, 1; !stopped; next = 1 + steps/4 {
			before := steps
			for ; p.c.FreeGPUs() < e.gpus || next > 0; next-- {
				v, keeps, had := vs.next()
				if v == nil {
					break
				}
				if had == len(v.placement.Members) {
					gone = append(gone, v)
				}
				p.free(p.c, v, keeps, had)
				steps++
			}
			if steps == before || p.c.FreeGPUs() < e.gpus {
				return
			}
			var f pal.Found
			f, stopped = p.backfill(e)
			on = f.Placement
		}
	})
	return stopped && p.stop(gone, e, on)
}

// fitsOnceOthersEnd reports whether a waiting gang fits as soon as the stopping gangs have ended.
// Gangs that stop for another gang do not count. Then no further gang is stopped for it.
func (p *pass) fitsOnceOthersEnd(e *entry) (ok bool) {
	ending := slices.DeleteFunc(slices.Clone(p.running), func(v *entry) bool { return v.state != stopping || v.stopsFor != "" })
	if len(ending) == 0 {
		return false
	}
	p.foreseeHead(e)
	p.whatIf(func() {
		for _, v := range ending {
			p.free(p.c, v, len(v.target.Members), len(v.placement.Members))
		}
		_, ok = p.backfill(e)
	})
	return ok
}

// levelFor converts the level of the running gang v, so that it can be compared with the level of
// the waiting gang e. The parameter `its` is v's own level. Under fair share, the priority does not
// count between gangs of two tenants.
func (p *finder) levelFor(e, v *entry, its int) int {
	if p.opt.FairShare && v.of.tenant != e.of.tenant {
		its += (p.behind(e) - p.behind(v)) * orderLevels
	}
	return its
}

// ranLongEnough reports whether a running gang can be stopped or moved at startTime: it has run
// long enough, is at a checkpoint, and is not expected to have ended.
func (p *finder) ranLongEnough(v *entry) bool {
	at := p.startTime()
	return at >= v.safeUntil() && v.atCheckpoint(at) && (at == p.now || v.expectedEnd > at)
}

// A gang runs for at least minRuns × its restart cost before it can be stopped or moved. So
// restarts cost at most half of a gang's run time.
const minRuns = 2

// stop promises the placement to the gang e, and stops the victims that hold a GPU of
// the placement. If a victim can give back the members from the first such GPU on, only these end,
// because Nomad ends the last members first.
func (p *pass) stop(victims []*entry, e *entry, pl pal.Placement) (stopped bool) {
	if p.verdicts != nil { // until the caller has carried out the stop, the gang waits for what it lacks now
		w := p.why(e, reason.GPUs)
		p.verdicts[e] = &w
	}
	wanted := setOf(pl.GPUs())
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
		v.state, v.stopsFor = stopping, e.job.ID
		p.countFreeing(v)
		p.actions = append(p.actions, a)
		stopped = true
	}
	if stopped {
		e.promised = &promised{placement: pl}
		p.claims = append(p.claims, e)
		p.promise(e, 1)
		p.hold(pl.GPUs())
	}
	return stopped
}

// endOn returns when a waiting gang is expected to end if it starts on this placement at the given
// time.
func (e *entry) endOn(pl pal.Placement, at time.Duration) time.Duration {
	return later(at, stretched(e.memo.expect, pl.Cost()*e.slowerWith(len(pl.Members))))
}
