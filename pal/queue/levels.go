// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// levels holds the running preemptible gangs in the order in which victims are chosen: worst level
// first, and latest start first within a level.
type levels struct {
	of   []*level // worst first; some may be empty
	due  heap     // the gangs, by the time when their levels must be computed again
	safe []*entry // gangs that may not have run long enough to be stopped
}

// level holds the running preemptible gangs of one level.
type level struct {
	level int
	gpus  int
	es    []*entry // by the time of start, earliest first
}

// byStart compares gangs of a level by the time of start.
func byStart(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.startedAt, b.startedAt), cmp.Compare(a.seq, b.seq))
}

func newLevels() levels {
	return levels{due: heap{
		less: func(a, b *entry) bool { return a.levelDue < b.levelDue || a.levelDue == b.levelDue && a.seq < b.seq },
		pos:  func(e *entry) *int { return &e.duePos },
	}}
}

// add adds a preemptible gang that began to run at the given time. The gang's level is computed
// when a pass needs victims.
func (ls *levels) add(e *entry, at time.Duration) {
	e.levelDue = at
	ls.due.push(e)
	e.rated = true
	if e.safeUntil > at {
		ls.safe = append(ls.safe, e)
	}
}

// remove drops a gang that no longer runs.
func (ls *levels) remove(e *entry) {
	if !e.rated {
		return
	}
	ls.due.remove(e)
	ls.drop(e)
	e.rated = false
}

// drop removes a gang from the list of its level.
func (ls *levels) drop(e *entry) {
	if e.level == nil {
		return
	}
	i, _ := slices.BinarySearchFunc(e.level.es, e, byStart)
	e.level.es = slices.Delete(e.level.es, i, i+1)
	e.level.gpus -= e.gpus
	e.level = nil
}

// put moves a gang to the level n.
func (ls *levels) put(e *entry, n int) {
	if e.level != nil && e.level.level == n {
		return
	}
	ls.drop(e)
	i, ok := slices.BinarySearchFunc(ls.of, n, func(a *level, n int) int { return cmp.Compare(n, a.level) })
	if !ok {
		ls.of = slices.Insert(ls.of, i, &level{level: n})
	}
	e.level = ls.of[i]
	at, _ := slices.BinarySearchFunc(e.level.es, e, byStart)
	e.level.es = slices.Insert(e.level.es, at, e)
	e.level.gpus += e.gpus
}

// relevel computes the levels of gangs whose level could have changed.
func (ls *levels) relevel(fs *foresight, now time.Duration) {
	for len(ls.due.es) > 0 && ls.due.es[0].levelDue <= now {
		e := ls.due.es[0]
		ls.put(e, fs.level(e, now))
		e.levelDue = max(now+1, fs.nextLevel(e, now))
		ls.due.fix(e)
	}
}

// looks says how often a level under SRTF or Adaptive is computed again: each time the gang has
// done another 1/looks of its work so far. If DefaultRuntime is longer than the work so far,
// 1/looks of DefaultRuntime is used instead.
const looks = 16

// nextLevel returns when a running gang's level must be computed again. Under LAS, the result
// is exactly the time at which the level changes. Under FIFO, levels never change. Under SRTF and Adaptive, the level can change before or after the returned time.
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
		if e.elastic != nil { // rounding down may have lost a part of its attained time
			due -= time.Duration(e.whole()/e.gpus + 1)
		}
		return due
	case SRTF, Adaptive:
		more := max(e.work(now), fs.opt.DefaultRuntime) / looks
		return now + stretched(more, e.cost(e.placement))
	}
	return math.MaxInt64
}

// stopsFrom calls `soon` with each time at which a running gang may become a victim. Under SRTF and
// Adaptive, the time at which a gang reaches a worse level is unknown, so stopsFrom assumes a
// quarter of a quantum from now.
func (ls *levels) stopsFrom(fs *foresight, now time.Duration, soon func(time.Duration)) {
	ls.safe = slices.DeleteFunc(ls.safe, func(e *entry) bool {
		if !e.rated || e.safeUntil <= now {
			return true
		}
		soon(e.safeUntil)
		return false
	})
	for _, e := range ls.due.es {
		if at, ok := e.nextCheckpoint(now); ok {
			soon(at)
		}
	}
	switch fs.opt.Order {
	case SRTF, Adaptive:
		if len(ls.due.es) > 0 {
			soon(now + fs.opt.Quantum/4)
		}
	default:
		ls.relevel(fs, now)
		if len(ls.due.es) > 0 && ls.due.es[0].levelDue < math.MaxInt64 {
			at := ls.due.es[0].levelDue
			if fs.opt.Order == LAS {
				at++ // levelDue was rounded down
			}
			soon(at)
		}
	}
}

// victims is an iterator over the running gangs that can make room for a waiting gang. First, elastic
// gangs give back members, one after the other: the gangs with the most expected remaining GPU time
// first. Then gangs are stopped: worst level first, and latest start first within a level. The levels
// of gangs must not change before the iteration ends.
type victims struct {
	p       *planner
	by      *entry // the waiting gang
	level   int    // its level
	lenders []*entry
	of      []*level // levels not visited yet
	left    []*entry // remaining gangs of the current level; victims come from the end
	freed   freedGPUs
	kept    map[*entry]int // members that the victims so far keep
}

// victimsFor returns the victims for the waiting gang e of the given level. Only gangs of worse levels
// are stopped, or any gangs if e may reclaim its tenant's quota.
func (p *planner) victimsFor(e *entry, its int) *victims {
	vs := &victims{p: p, by: e, level: its, freed: freedGPUs{}, kept: map[*entry]int{}}
	for _, v := range p.elastics {
		if v.hasLent() && p.ranLongEnough(v) {
			vs.lenders = append(vs.lenders, v)
		}
	}
	slices.SortFunc(vs.lenders, func(a, b *entry) int { return p.byArea(b, a) })
	if !p.opt.Preempt {
		return vs
	}
	p.levels.relevel(&p.foresight, p.now)
	above := its
	if p.claimOf(e) > 0 {
		above = math.MinInt
	}
	i, _ := slices.BinarySearchFunc(p.levels.of, above, func(l *level, n int) int { return cmp.Compare(n, l.level) })
	vs.of = p.levels.of[:i]
	return vs
}

// atMost returns an upper bound of the number of GPUs that all victims free.
func (vs *victims) atMost() int {
	n := 0
	for _, e := range vs.lenders {
		n += e.gpus - e.least()
	}
	for _, l := range vs.of {
		n += l.gpus
	}
	return n
}

// next returns the next victim: its members keeps…had-1 end. It returns nil if there is none.
func (vs *victims) next() (v *entry, keeps, had int) {
	for ; len(vs.lenders) > 0; vs.lenders = vs.lenders[1:] {
		v = vs.lenders[0]
		if had = vs.has(v); had > v.job.Least && vs.p.lends(v, vs.by, vs.level, vs.freed) {
			return v, vs.take(v, had-1), had
		}
	}
	for {
		for len(vs.left) > 0 {
			v = vs.left[len(vs.left)-1]
			vs.left = vs.left[:len(vs.left)-1]
			if v.state == running && vs.p.ranLongEnough(v) && vs.p.mayPreempt(v, vs.by, vs.level, vs.freed) {
				had = vs.has(v)
				return v, vs.take(v, 0), had
			}
		}
		if len(vs.of) == 0 {
			return nil, 0, 0
		}
		vs.left, vs.of = vs.of[0].es, vs.of[1:]
	}
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
	vs.freed.add(v, v.amount(len(v.with(n, vs.has(v)).placement.GPUs())))
	vs.kept[v] = n
	return n
}

// mayPreempt reports whether the running gang v can be stopped for the waiting gang e of the given
// level. In a turn (the level is math.MinInt), every gang can be stopped.
func (p *planner) mayPreempt(v, e *entry, level int, freed freedGPUs) bool {
	return level == math.MinInt || p.outranks(p.levelFor(e, v, v.level.level) > level, v, e, freed)
}
