// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// relevel computes the level of a running gang that can be stopped, if the level could have changed.
func (fs *foresight) relevel(e *entry, now time.Duration) int {
	if e.memo.levelDue <= now {
		e.memo.level = fs.levelNow(e, now)
		e.memo.levelDue = max(now+1, fs.nextLevel(e, now))
	}
	return e.memo.level
}

// looks says how often a level under SRTF or Adaptive is computed again: each time the gang has
// done another 1/looks of its work so far. If DefaultRuntime is longer than the work so far,
// 1/looks of DefaultRuntime is used instead.
const looks = 16

// nextLevel returns when a running gang's level must be computed again. Under LAS, the result
// is exactly the time at which the level changes. Under FIFO, levels never change. Under SRTF and
// Adaptive, the level can change before or after the returned time.
func (fs *foresight) nextLevel(e *entry, now time.Duration) time.Duration {
	switch fs.opt.Order {
	case LAS:
		attained := e.attained(now)
		if float64(attained)*float64(e.whole()) >= math.MaxInt64 {
			return math.MaxInt64
		}
		had, edge := attained*time.Duration(e.whole()), float64(fs.opt.Quantum)/e.amount(1)
		for time.Duration(math.Ceil(edge)) <= had {
			if edge > math.MaxInt64/4 {
				return math.MaxInt64 // after over a million GPU hours, the next power of 4 overflows 64 bits
			}
			edge *= 4
		}
		due := later(now, (time.Duration(math.Ceil(edge))-had)/time.Duration(e.gpus))
		if e.elastic() { // rounding down may have lost a part of its attained time
			due -= time.Duration(e.whole()/e.gpus + 1)
		}
		return due
	case SRTF, Adaptive:
		more := max(e.work(now), fs.opt.DefaultRuntime) / looks
		return now + stretched(more, e.cost(e.placement))
	}
	return math.MaxInt64
}

// mayBeStopped returns the running gangs that can be stopped, in the order in which victims are
// chosen: worst level first, and latest start first within a level.
func (p *pass) mayBeStopped() []*entry {
	if p.victims == nil {
		p.victims = []*entry{}
		for _, e := range p.running {
			if p.stoppable(e) {
				p.relevel(e, p.now)
				p.victims = append(p.victims, e)
			}
		}
		slices.SortFunc(p.victims, func(a, b *entry) int {
			return cmp.Or(cmp.Compare(b.memo.level, a.memo.level), cmp.Compare(b.startedAt, a.startedAt), cmp.Compare(b.seq, a.seq))
		})
	}
	return p.victims
}

// victims is an iterator over the running gangs that can make room for a waiting gang. First, elastic
// gangs give back members, one after the other: the gangs with the most expected remaining GPU time
// first. Then gangs are stopped: see mayBeStopped.
type victims struct {
	p       *pass
	by      *entry // the waiting gang
	level   int    // its level
	lenders []*entry
	left    []*entry // gangs that may be stopped
	freed   freedGPUs
	kept    map[*entry]int // members that the victims so far keep
}

// victimsFor returns the victims for the waiting gang e of the given level. Only gangs of worse levels
// are stopped, or any gangs if e may reclaim its tenant's quota.
func (p *pass) victimsFor(e *entry, its int) *victims {
	vs := &victims{p: p, by: e, level: its, freed: freedGPUs{}, kept: map[*entry]int{}}
	for _, v := range p.running {
		if v.hasLent() && p.ranLongEnough(v) {
			vs.lenders = append(vs.lenders, v)
		}
	}
	slices.SortFunc(vs.lenders, func(a, b *entry) int { return p.byArea(b, a) })
	if p.opt.Preempt {
		vs.left = p.mayBeStopped()
		if p.claimOf(e) == 0 {
			n := slices.IndexFunc(vs.left, func(v *entry) bool { return v.memo.level <= its })
			if n >= 0 {
				vs.left = vs.left[:n]
			}
		}
	}
	return vs
}

// atMost returns an upper bound of the number of GPUs that all victims free.
func (vs *victims) atMost() int {
	n := 0
	for _, e := range vs.lenders {
		n += e.gpus - e.least()
	}
	for _, e := range vs.left {
		n += e.gpus
	}
	return n
}

// next returns the next victim: its members keeps…had-1 end. It returns nil if there is none.
func (vs *victims) next() (v *entry, keeps, had int) {
	for ; len(vs.lenders) > 0; vs.lenders = vs.lenders[1:] {
		v = vs.lenders[0]
		had = vs.has(v)
		if had > v.job.Least && vs.p.lends(v, vs.by, vs.level, vs.freed) {
			return v, vs.take(v, had-1), had
		}
	}
	for len(vs.left) > 0 {
		v = vs.left[0]
		vs.left = vs.left[1:]
		if v.state == running && vs.p.ranLongEnough(v) && vs.p.mayPreempt(v, vs.by, vs.level, vs.freed) {
			had = vs.has(v)
			return v, vs.take(v, 0), had
		}
	}
	return nil, 0, 0
}

// has returns the number of members that a victim has now.
func (vs *victims) has(v *entry) int {
	if n, ok := vs.kept[v]; ok {
		return n
	}
	return len(v.placement.Members)
}

// take leaves the victim the first n members.
func (vs *victims) take(v *entry, n int) int {
	gpus := 0
	for _, m := range v.placement.Members[n:vs.has(v)] {
		gpus += len(m.GPUs)
	}
	vs.freed.add(v, v.amount(gpus))
	vs.kept[v] = n
	return n
}

// mayPreempt reports whether the running gang v can be stopped for the waiting gang e of the given
// level. In a turn (the level is math.MinInt), every gang can be stopped.
func (p *pass) mayPreempt(v, e *entry, level int, freed freedGPUs) bool {
	return level == math.MinInt || p.outranks(p.levelFor(e, v, p.relevel(v, p.now)) > level, v, e, freed)
}
