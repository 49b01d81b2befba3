// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// An elastic gang runs with as many members as fit: at least Job.Least, and at most all members of
// its Gang. The GPUs of members beyond Job.Least are lent to the gang, as in Volcano and KAI:
//
//   - It starts with as many members as fit, without waiting for more or for better GPUs. It starts
//     with fewer members if it then ends sooner, because their GPUs are closer together.
//   - It grows on free GPUs that no waiting gang can use, if that delays no head and saves more than
//     twice the restart cost.
//   - It gives members back, the last first, if a waiting gang of the same or a better level can then
//     start, before any gang is stopped. Quotas protect it as they protect gangs that can be stopped.
//
// After each start and each change of size, the gang keeps its size for twice the restart cost. A
// waiting elastic gang counts with all its members in the queue.

// elastic reports whether the gang is elastic.
func (e *entry) elastic() bool { return e.job.Least > 0 }

// checkElastic returns an error if the gang is elastic and its sizes are invalid.
func (j Job) checkElastic() error {
	sets := j.Gang.MemberSets
	if j.Least != 0 && (len(sets) != 1 || j.Least < 0 || j.Least > sets[0].Members) {
		return fmt.Errorf("queue: job %q: an elastic gang has one set of members, and a minimum of at least 1 of them, not %d", j.ID, j.Least)
	}
	return nil
}

// Slower returns the run time with n members relative to the run time with all members.
func Slower(n, all int) float64 { return float64(all) / float64(max(1, n)) }

// allMembers returns the gang with all its members.
func (e *entry) allMembers() pal.Gang {
	if e.elastic() {
		return e.full
	}
	return e.job.Gang
}

// whole returns the number of GPUs that the gang requests with all its members.
func (e *entry) whole() int {
	if e.elastic() {
		return e.full.GPUs()
	}
	return e.gpus
}

// least returns the smallest number of GPUs on which the gang can run.
func (e *entry) least() int {
	if e.elastic() {
		return e.job.Least * e.full.MemberSets[0].GPUs
	}
	return e.gpus
}

// slower returns the gang's run time with its current number of members, relative to the run time
// with all members.
func (e *entry) slower() float64 {
	if e.elastic() {
		return e.slowerWith(e.job.Gang.MemberSets[0].Members)
	}
	return 1
}

// slowerWith is like slower, for n members.
func (e *entry) slowerWith(n int) float64 {
	if e.elastic() {
		return Slower(n, e.full.MemberSets[0].Members)
	}
	return 1
}

// sized returns the elastic gang with n members.
func (e *entry) sized(n int) pal.Gang {
	g := e.full
	g.MemberSets = slices.Clone(g.MemberSets)
	g.MemberSets[0].Members = n
	return g
}

// resize sets the number of members of an elastic gang. For other gangs, resize does nothing.
func (q *Queue) resize(e *entry, n int) {
	if !e.elastic() || n == e.job.Gang.MemberSets[0].Members {
		return
	}
	e.job.Gang = e.sized(n)
	e.gpus = e.job.Gang.GPUs()
	q.sign(e)
}

// asManyAsFit searches for a placement of the gang with the function find. ok is false if there is
// none. An elastic gang gets as many members as fit, or as many as fit on one node, rack or datacenter
// if it then ends sooner. If it does not fit, it keeps its least size.
func (p *pass) asManyAsFit(e *entry, find func(*entry) (pal.Found, bool)) (best pal.Found, ok bool) {
	if !e.elastic() {
		return find(e)
	}
	set, ends := e.full.MemberSets[0], math.Inf(1)
	room := func(t pal.Tier) int {
		n := min(set.Members, p.c.FreeWithin(e.full, p.opt.OutlierThreshold, t))
		for n > e.job.Least && e.limiting(n*set.GPUs) != nil {
			n--
		}
		return max(e.job.Least, n)
	}
	try := func(n int) bool {
		p.resize(e, n)
		f, fits := find(e)
		takes := e.cost(f.Placement)
		if fits && takes < ends {
			best, ends = f, takes
		}
		return fits
	}
	n := room(pal.TierCluster)
	for !try(n) {
		if n == e.job.Least {
			return best, false
		}
		n = max(e.job.Least, n/2)
	}
	for t := best.Tier - 1; t >= pal.TierNode; t-- {
		fewer := room(t)
		if fewer < n {
			n = fewer
			try(n)
		}
	}
	p.resize(e, len(best.Members))
	return best, true
}

// byArea compares gangs by area, which is roughly the GPU time that a gang is still expected to
// use.
func (p *finder) byArea(a, b *entry) int {
	return cmp.Or(cmp.Compare(p.area(a, p.now), p.area(b, p.now)), cmp.Compare(a.seq, b.seq))
}

// hasLent reports whether the gang is elastic, runs, and could give back members.
func (e *entry) hasLent() bool {
	return e.elastic() && e.state == running && !e.settled && len(e.placement.Members) > e.job.Least
}

// lends reports whether the running gang v would give back a member for the waiting gang e of the
// given level. In a turn (the level is math.MinInt), v always gives back members.
func (p *pass) lends(v, e *entry, level int, freed freedGPUs) bool {
	if !v.hasLent() {
		return false
	}
	return level == math.MinInt || p.outranks(p.levelFor(e, v, p.levelNow(v, p.now)) >= level, v, e, freed)
}

// grow gives free GPUs to elastic gangs. Growing is the last step of a pass, so no waiting gang can use
// these GPUs now. The gangs with the least expected remaining GPU time grow first.
func (p *pass) grow() {
	if p.c.FreeGPUs() == 0 || p.full() {
		return
	}
	es := slices.DeleteFunc(slices.Clone(p.running), func(e *entry) bool {
		return !e.elastic() || e.state != running || e.settled || len(e.placement.Members) == e.full.MemberSets[0].Members || !p.ranLongEnough(e)
	})
	slices.SortFunc(es, p.byArea)
	for _, e := range es {
		if to, ok := p.larger(e); ok {
			p.countHeld(e, -1)
			p.moveTo(e, Resize, to)
			p.countHeld(e, 1)
		}
	}
}

// larger adds as many members to a running gang as pays: growing must save more than twice the restart
// cost, and not delay the head. An outlier is added only if it is no slower than the gang's slowest
// GPU.
func (p *pass) larger(e *entry) (to pal.Placement, ok bool) {
	now, set := len(e.placement.Members), e.full.MemberSets[0]
	left := float64(p.remaining(e, p.now))
	more := *e
	more.within = max(pal.PMScore(p.opt.OutlierThreshold), e.placement.PMScore)
	for n := min(set.Members-now, p.c.FreeGPUs()/set.GPUs); n > 0; n /= 2 {
		more.job.Gang = e.sized(n)
		p.sign(&more)
		more.gpus = more.job.Gang.GPUs()
		if more.limiting(more.gpus) != nil {
			continue
		}
		to, fits := p.enlarged(e, &more)
		takes := left * to.Cost() * Slower(now+n, set.Members)
		if !fits || left*e.cost(e.placement)-takes <= 2*float64(e.job.RestartCost) {
			continue
		}
		if p.head == nil || !p.delaysHead(to, p.now+atMostLongest(takes)+e.job.RestartCost) {
			return to, true
		}
	}
	return to, false
}

// delaysHead reports whether a gang that ends at the given time uses GPUs that the head needs before.
func (p *pass) delaysHead(pl pal.Placement, ends time.Duration) bool {
	r := p.headReserve()
	return r.known && ends > r.at && firstOn(pl, setOf(r.placement.GPUs())) >= 0
}

// enlarged returns the placement of the running gang e with the additional members of `more`. If
// these members do not fit, or if all members together would be too far apart, enlarged returns
// false.
func (p *pass) enlarged(e, more *entry) (pal.Placement, bool) {
	f, ok := p.find(more)
	if !ok {
		return pal.Placement{}, false
	}
	members := slices.Concat(e.placement.Members, f.Members)
	to := pal.Predict(p.c, e.sized(len(members)), members)
	return to, e.full.MaxTier == 0 || to.Tier <= e.full.MaxTier
}

// Settled reports that some of a gang's members have finished their work. From now until its next
// start, the gang is not moved or resized.
func (q *Queue) Settled(id string) {
	e := q.entries[id]
	if e != nil {
		e.settled = true
	}
}

// Size is the number of members of an elastic gang, with its bounds.
type Size struct {
	Members int `json:"members"` // current members; 0 while the gang waits
	Least   int `json:"least"`   // minimum number of members
	Most    int `json:"most"`    // maximum number of members
	// Settled means that the gang keeps its size, because some of its members have finished.
	Settled bool `json:"settled,omitempty"`
}

// SizeOf returns the size of a gang that runs or waits; ok is false if it is not elastic.
func (q *Queue) SizeOf(id string) (s Size, ok bool) {
	e := q.entries[id]
	if e == nil || !e.elastic() {
		return s, false
	}
	s = Size{Least: e.job.Least, Most: e.full.MemberSets[0].Members, Settled: e.settled}
	if e.state >= running {
		s.Members = len(e.placement.Members)
	}
	return s, true
}
